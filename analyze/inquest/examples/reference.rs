//! Writes the manual pages of `inquest` and its completions for bash, zsh and fish: `reference FOLDER`, where FOLDER becomes
//! what packages install as `share`. They are made from the definitions by which the programs parse their arguments.

use std::{error::Error, fs, path::Path};

use clap::{Arg, Command};
use clap_complete::{Shell, generate};

/// Returns the command line of `inquest` with those of both programs in it.
fn command() -> Command {
    let run = Arg::new("run")
        .value_name("RUN.parquet")
        .value_parser(clap::value_parser!(std::path::PathBuf))
        .help("A run alone stands for `inquest analyze RUN.parquet`: what is wrong in it, ranked");
    Command::new("inquest")
        .about(env!("CARGO_PKG_DESCRIPTION"))
        .version(env!("CARGO_PKG_VERSION"))
        .args_conflicts_with_subcommands(true)
        .disable_help_subcommand(true)
        .arg(run)
        .subcommand(capture::command())
        .subcommand(analyze::cli::command())
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).ok_or("usage: reference FOLDER")?;
    let folder = Path::new(&folder);
    let pages = folder.join("man/man1");
    fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(command(), &pages)?;
    // Where each shell looks for what packages install.
    for (shell, path) in [
        (Shell::Bash, "bash-completion/completions/inquest"),
        (Shell::Zsh, "zsh/site-functions/_inquest"),
        (Shell::Fish, "fish/vendor_completions.d/inquest.fish"),
    ] {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        let mut text = Vec::new();
        generate(shell, &mut command(), "inquest", &mut text);
        fs::write(path, text)?;
    }
    Ok(())
}
