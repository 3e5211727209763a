//! `analyze mcp`.

use std::{net::SocketAddr, path::PathBuf};

use crate::mcp::{
    http::{self, Token},
    roots::Roots,
    server::Server,
    stdio,
};
use analyze_run::{error::AnalyzeError, progress};

/// Serve the questions of this program to agents, by the Model Context Protocol (MCP.md has configurations for clients)
///
/// Clients can open the runs that are given, or lie in a folder that is given, and nothing else; they can only read. A client
/// starts the server and speaks to it over standard input and output, or, with --http, over the loopback interface.
#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 the client closed standard input; 2 wrong usage, or a client that does not speak the protocol; \
    5 reading or writing failed; 70 internal error."
)]
pub(super) struct Args {
    /// Runs, and folders with runs, that clients may open [default: the current folder]
    #[arg(value_name = "RUN")]
    roots: Vec<PathBuf>,
    /// Serve over streamable HTTP at an address of the loopback interface, such as 127.0.0.1:8642
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,
    /// File with the token that HTTP requests have to carry [default: the environment variable INQUEST_MCP_TOKEN]
    #[arg(long, value_name = "FILE", requires = "http")]
    token_file: Option<PathBuf>,
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        let roots = Roots::new(&self.roots)?;
        // Clients wait for answers, not for a line on a terminal.
        progress::end();
        let server = Server::new(roots);
        match self.http {
            Some(address) => {
                let token = Token::read(self.token_file.as_deref())?;
                stdio::apart(http::serve(server, address, token)).await
            }
            None => stdio::apart(stdio::serve(server)).await,
        }
    }
}
