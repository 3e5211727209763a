//! Takes secrets out of command lines, before they are recorded or from a run that has them.
//!
//! A secret is recognised by its name, not by its value: `--password VALUE`, `API_KEY=VALUE`, `Authorization: VALUE`, and the
//! password in `scheme://user:password@host`. What follows such a name is taken for its value, because to hide a harmless
//! word costs less than to publish a password.

use std::{collections::BTreeMap, fmt, str::FromStr};

use crate::Run;

/// Stands where something was taken out.
const MARK: &str = "[redacted]";

/// Ends of the names of secrets, in lower case and without `-`, `_` and `.`: `--hf-token` and `WANDB_API_KEY` are secrets.
const SECRETS: [&str; 14] = [
    "password",
    "passwd",
    "passphrase",
    "token",
    "secret",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "encryptionkey",
    "authkey",
    "authorization",
    "credential",
    "credentials",
];

/// Ends of names that are no secrets, although they end like one: the special tokens of language models.
const NO_SECRETS: [&str; 9] = [
    "bostoken",
    "clstoken",
    "eostoken",
    "imagetoken",
    "masktoken",
    "padtoken",
    "septoken",
    "stoptoken",
    "unktoken",
];

/// What is taken out of command lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Redaction {
    /// Nothing.
    #[default]
    Off,
    /// The values of secrets.
    Secrets,
    /// The values of secrets, and every argument that contains this text.
    Text(String),
    /// Everything but the program's name.
    All,
}

impl FromStr for Redaction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("text:")) {
            ("off", _) => Ok(Self::Off),
            ("secrets", _) => Ok(Self::Secrets),
            ("all", _) => Ok(Self::All),
            (_, Some(wanted)) if !wanted.is_empty() => Ok(Self::Text(wanted.to_owned())),
            _ => Err(format!("{text:?} is not one of secrets, all, text:TEXT, off")),
        }
    }
}

impl fmt::Display for Redaction {
    /// Writes the mode; the text of [`Redaction::Text`] may be confidential itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Secrets => "secrets",
            Self::Text(_) => "text",
            Self::All => "all",
        })
    }
}

/// Returns whether a name is that of a secret; dashes before it do not matter.
fn is_secret(name: &str) -> bool {
    let name: String =
        name.chars().filter(|c| !matches!(c, '-' | '_' | '.')).map(|c| c.to_ascii_lowercase()).collect();
    SECRETS.iter().any(|end| name.ends_with(end)) && !NO_SECRETS.iter().any(|end| name.ends_with(end))
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// Returns whether a word is the name of a secret and nothing else.
fn is_name_of_secret(word: &str) -> bool {
    word.chars().all(is_of_name) && is_secret(word)
}

/// Returns whether the word after this one is the value of a secret.
fn is_secret_option(word: &str) -> bool {
    word.starts_with('-') && is_name_of_secret(word)
}

/// Returns the program of a command line without its directories.
fn program(word: &str) -> &str {
    let path = word.split_whitespace().next().unwrap_or_default();
    path.rsplit('/').next().unwrap_or(path)
}

/// How far the value of a secret reaches in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// To the next space: the text is one argument, such as a script for a shell.
    Word,
    /// To the next option, which begins with two dashes: the text is arguments joined by spaces, and a value may have had spaces.
    Option,
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'')
}

/// Returns the length in bytes of the quoted text at the beginning of a text, with its quotes; `None` if there is none.
fn quoted_bytes(text: &str) -> Option<usize> {
    let quoted = text.trim_start_matches('\\');
    let quote = quoted.chars().next().filter(|c| is_quote(*c))?;
    let escapes = text.len() - quoted.len();
    // Quotes within quotes are escaped themselves.
    let mut is_escaped = false;
    for (at, c) in quoted.char_indices().skip(1) {
        if c == quote && !is_escaped {
            return Some(escapes + at + 1);
        }
        is_escaped = escapes == 0 && c == '\\' && !is_escaped;
    }
    None
}

/// Returns where in `after` the value of `name` is, from and to, in bytes. Returns `None` if that is no name of a secret, or if
/// it has no value.
fn value(name: &str, after: &str, reach: Reach) -> Option<(usize, usize)> {
    if !is_secret(name) {
        return None;
    }
    // In JSON, the name is in quotes.
    let unquoted = after.strip_prefix(is_quote).unwrap_or(after).trim_start_matches(' ');
    let (raw, is_header) = match unquoted.strip_prefix(['=', ':']) {
        Some(raw) => (raw, unquoted.starts_with(':') && raw.starts_with(' ')),
        None if name.starts_with('-') && after.starts_with(char::is_whitespace) => (after, false),
        None => return None,
    };
    let value = raw.trim_start();
    if value.len() < raw.len() && value.starts_with("--") {
        return None;
    }
    // What is redacted already stays as it is.
    let known = value.starts_with(MARK).then_some(MARK.len());
    let bytes = known.or_else(|| quoted_bytes(value)).unwrap_or_else(|| {
        let ends: fn(char) -> bool = match is_header {
            // `Authorization: Bearer VALUE`.
            true => |c: char| is_quote(c) || c == '\n',
            false => |c: char| is_quote(c) || c.is_whitespace() || matches!(c, '&' | ';'),
        };
        let end = match reach {
            Reach::Word => value.find(ends),
            Reach::Option => value.find(" --"),
        };
        end.unwrap_or(value.len())
    });
    let from = after.len() - value.len();
    (bytes > 0).then_some((from, from + bytes))
}

/// Takes the values of secrets out of a text of several words.
fn without_secrets(text: &str, reach: Reach) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let name_end = rest.find(|c: char| !is_of_name(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(name_end);
        let next = match value(name, after, reach) {
            Some((from, to)) => {
                shown += &rest[..name_end + from];
                shown += MARK;
                name_end + to
            }
            None => {
                let next = name_end + after.chars().next().map_or(0, char::len_utf8);
                shown += &rest[..next];
                next
            }
        };
        rest = &rest[next..];
    }
    shown
}

/// Takes passwords out of the addresses in a text: `scheme://user:password@host`. A user without a password is a token where
/// the scheme is that of the web.
fn without_passwords(text: &str) -> String {
    let mut shown = String::new();
    let mut at = 0;
    // Where the address ends, and its last @: known until then, so that a text with many addresses in one is read once.
    let (mut end, mut last_at) = (0, None);
    while let Some(found) = text[at..].find("://") {
        let start = at + found + 3;
        let before = &text[at..start];
        shown += before;
        at = start;
        if end < start {
            let after = &text[start..];
            end =
                after.find(|c: char| c.is_whitespace() || is_quote(c)).map_or(text.len(), |end| start + end);
            last_at = text[start..end].rfind('@').map(|place| start + place);
        }
        let address = &text[start..end];
        let authority = &address[..address.find(['/', '?', '#']).unwrap_or(address.len())];
        // A password may have slashes, although it should not; a number in that place is a port.
        let has_more =
            authority.rsplit_once(':').is_some_and(|(_, port)| !port.chars().all(|c| c.is_ascii_digit()));
        let later = last_at.filter(|place| has_more && *place >= start);
        let Some(user_end) = authority.rfind('@').map(|place| start + place).or(later) else { continue };
        let user = &text[start..user_end];
        let is_web = before.ends_with("http://") || before.ends_with("https://");
        match user.split_once(':') {
            Some((name, _)) => shown += &format!("{name}:{MARK}"),
            None if is_web => shown += MARK,
            None => shown += user,
        }
        at = user_end;
    }
    shown + &text[at..]
}

impl Redaction {
    /// Redacts the words of a command line.
    pub fn words(&self, words: &[String]) -> Vec<String> {
        match (self, words) {
            (Self::Off, _) | (_, []) => words.to_vec(),
            // How `capture` chose its processes is no command line.
            (Self::All, [first, ..]) if first.starts_with("--") => words.to_vec(),
            (Self::All, [first, rest @ ..]) => {
                let has_more = !rest.is_empty() || first.trim().contains(char::is_whitespace);
                let mark = has_more.then(|| MARK.to_owned());
                std::iter::once(program(first).to_owned()).chain(mark).collect()
            }
            // Some sources have command lines in one piece.
            (_, [line]) => vec![self.text(line, Reach::Option)],
            _ => {
                let mut is_value = false;
                let word = |word: &String| {
                    let is_option = word.starts_with("--");
                    let hides = std::mem::replace(&mut is_value, is_secret_option(word)) && !is_option;
                    if hides { MARK.to_owned() } else { self.word(word) }
                };
                words.iter().map(word).collect()
            }
        }
    }

    fn word(&self, word: &str) -> String {
        if matches!(self, Self::Text(wanted) if word.contains(wanted.as_str())) {
            return MARK.to_owned();
        }
        // All that follows the name is the value: it may have spaces.
        match word.split_once('=') {
            Some((name, value)) if !value.is_empty() && is_name_of_secret(name) => format!("{name}={MARK}"),
            _ => without_passwords(&without_secrets(word, Reach::Word)),
        }
    }

    /// Redacts a text in which there are command lines.
    fn text(&self, text: &str, reach: Reach) -> String {
        let text = without_passwords(&without_secrets(text, reach));
        let Self::Text(wanted) = self else { return text };
        let text = if wanted.contains(' ') { text.replace(wanted.as_str(), MARK) } else { text };
        let word =
            |word: &str| if word.contains(wanted.as_str()) { MARK.to_owned() } else { word.to_owned() };
        text.split(' ').map(word).collect::<Vec<String>>().join(" ")
    }
}

/// Redacts a run: the command lines that it names in its metadata, and those in its rows.
#[derive(Clone, Debug)]
pub struct Redactor {
    redaction: Redaction,
    /// The command lines in the metadata, whose words are known: what each becomes, joined by spaces.
    known: BTreeMap<String, String>,
}

impl Redactor {
    /// Creates a redactor for the rows of a run.
    pub fn new(redaction: Redaction, run: &Run) -> Self {
        let commands = run.processes.iter().map(|process| &process.command).chain([&run.command]);
        let known = commands
            .filter(|words| !words.is_empty())
            .map(|words| (words.join(" "), redaction.words(words).join(" ")))
            .collect();
        Self { redaction, known }
    }

    /// Returns whether command lines stay as they are.
    pub fn is_off(&self) -> bool {
        self.redaction == Redaction::Off
    }

    /// Redacts a command line whose words were joined by spaces, as in `detail` of an exec.
    pub fn line(&self, line: &str) -> String {
        let unknown = || self.redaction.words(&[line.to_owned()]).join(" ");
        self.known.get(line).cloned().unwrap_or_else(unknown)
    }

    /// Redacts the metadata, which then say so.
    pub fn run(&self, run: &mut Run) {
        if self.is_off() {
            return;
        }
        run.command = self.redaction.words(&run.command);
        for process in &mut run.processes {
            process.command = self.redaction.words(&process.command);
        }
        // Merged runs say which command lines contradict each other.
        for sentence in &mut run.not_captured {
            for (whole, redacted) in &self.known {
                *sentence = sentence.replace(&format!("{whole:?}"), &format!("{redacted:?}"));
            }
            *sentence = self.redaction.text(sentence, Reach::Word);
        }
        let how = self.redaction.to_string();
        if !run.redacted.contains(&how) {
            run.redacted.push(how);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProcessInfo;

    /// The words of a command line, which are separated by `|`, after redaction.
    fn redacted(mode: &str, command: &str) -> String {
        let words: Vec<String> = command.split('|').map(str::to_owned).collect();
        mode.parse::<Redaction>().expect("a mode").words(&words).join("|")
    }

    #[test]
    fn values_of_secrets_are_taken_out() {
        for (command, expected) in [
            ("train|--password|hunter2|--lr|0.1", "train|--password|[redacted]|--lr|0.1"),
            ("train|--password|-x y|z", "train|--password|[redacted]|z"),
            ("train|--password=hun;ter&2|z", "train|--password=[redacted]|z"),
            ("train|-token|abc", "train|-token|[redacted]"),
            (
                "train|--hf_token|hf_abc|--API-Key|k|--passwd|p",
                "train|--hf_token|[redacted]|--API-Key|[redacted]|--passwd|[redacted]",
            ),
            (
                "train|--db.password=x|model.secret=y",
                "train|--db.password=[redacted]|model.secret=[redacted]",
            ),
            // A flag without a value does not hide the option after it, nor that option's value.
            ("train|--use_auth_token|--hub-token|abc", "train|--use_auth_token|--hub-token|[redacted]"),
            ("train|--use_auth_token|--lr|0.1", "train|--use_auth_token|--lr|0.1"),
            (
                "env|WANDB_API_KEY=abc|AWS_SECRET_ACCESS_KEY=d/e+f=|PGPASSWORD=|python",
                "env|WANDB_API_KEY=[redacted]|AWS_SECRET_ACCESS_KEY=[redacted]|PGPASSWORD=|python",
            ),
            (
                "sh|-c|export HF_TOKEN=abc; python t.py --password 'a b' --lr 1",
                "sh|-c|export HF_TOKEN=[redacted]; python t.py --password [redacted] --lr 1",
            ),
            ("env|MY_SECRET=two words|python", "env|MY_SECRET=[redacted]|python"),
            ("sh|-c|python -c \"login(token=\\\"abc\\\")\"", "sh|-c|python -c \"login(token=[redacted])\""),
            ("curl|-H|Authorization: Bearer abc def|x", "curl|-H|Authorization: [redacted]|x"),
            ("curl|-H|X-Api-Key:abc|x", "curl|-H|X-Api-Key:[redacted]|x"),
            ("t|{\"api_key\": \"a\\\"b\", \"lr\": 1}", "t|{\"api_key\": [redacted], \"lr\": 1}"),
            ("t|https://h/a?token=abc&b=1", "t|https://h/a?token=[redacted]&b=1"),
            ("t|postgres://me:p@ss@host:5432/db", "t|postgres://me:[redacted]@host:5432/db"),
            ("t|--url=redis://:pw@host/0|s3://b/k", "t|--url=redis://:[redacted]@host/0|s3://b/k"),
            ("t|mysql://me:pa/ss@host/db", "t|mysql://me:[redacted]@host/db"),
            ("t|https://ghp_abc@github.com/x.git", "t|https://[redacted]@github.com/x.git"),
        ] {
            assert_eq!(redacted("secrets", command), expected);
            assert_eq!(redacted("secrets", expected), expected, "a second time");
        }
    }

    #[test]
    fn what_is_no_secret_stays() {
        for command in [
            "python3|train.py|--lr|0.1|-p|8080|--batch=4",
            "t|--max-tokens|512|--pad-token|<pad>|--eos_token=</s>|--tokenizer|gpt2",
            "t|--password-file|/run/secrets/x|--secret-name|x",
            "t|https://host:8080/@scope/pkg|ssh://git@host/x|http://a/b@c",
            "t|größe=1|日本|a::b|c:\\d|",
        ] {
            assert_eq!(redacted("secrets", command), command);
        }
        // The longest argument that Linux passes, with an address at every third byte: the recorder must not fall behind.
        let long = format!("t|{}", "://".repeat(40_000));
        assert_eq!(redacted("secrets", &long), long);
    }

    #[test]
    fn a_text_and_everything() {
        let command = "/opt/corp/bin/python3|--data|/corp/alpha x|--token|abc|--lr|0.1";
        let alpha = "/opt/corp/bin/python3|--data|[redacted]|--token|[redacted]|--lr|0.1";
        assert_eq!(redacted("text:alpha", command), alpha);
        assert_eq!(redacted("all", command), "python3|[redacted]");
        assert_eq!(redacted("all", "/bin/true"), "true");
        assert_eq!(redacted("all", "nginx: worker of me"), "nginx:|[redacted]");
        assert_eq!(redacted("all", "--pid 4242"), "--pid 4242");
        assert_eq!(redacted("off", command), command);
        for wrong in ["", "text:", "secret", "run.parquet"] {
            assert!(wrong.parse::<Redaction>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_run_is_redacted_in_its_metadata_and_rows() {
        let words = |text: &str| text.split('|').map(str::to_owned).collect::<Vec<String>>();
        let command = words("train|--password|two words|--lr|1");
        let mut run = Run {
            command: command.clone(),
            processes: vec![ProcessInfo { command: command.clone(), ..ProcessInfo::default() }],
            not_captured: vec![format!("process 1 is {:?} in one run", command.join(" "))],
            ..Run::default()
        };
        let redactor = Redactor::new(Redaction::Secrets, &run);
        assert_eq!(redactor.line("train --password two words --lr 1"), "train --password [redacted] --lr 1");
        // Its words are not known.
        assert_eq!(redactor.line("eval --password a b c --lr 1"), "eval --password [redacted] --lr 1");
        assert_eq!(redactor.line("sh -c TOKEN=a b c"), "sh -c TOKEN=[redacted]");
        redactor.run(&mut run);
        let expected = words("train|--password|[redacted]|--lr|1");
        assert_eq!((&run.command, &run.processes[0].command), (&expected, &expected));
        assert_eq!(run.not_captured, ["process 1 is \"train --password [redacted] --lr 1\" in one run"]);
        assert_eq!(run.redacted, ["secrets"]);
        let off = Redactor::new(Redaction::Off, &run);
        off.run(&mut run);
        assert_eq!(run.redacted, ["secrets"]);
    }
}
