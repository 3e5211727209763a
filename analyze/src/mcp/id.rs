//! Ids of evidence: URIs that say by themselves what they stand for, so that any session over the same runs resolves them.
//!
//! ```text
//! inquest://RUN                                  a run
//! inquest://RUN/call/PID/TID/TS/DEPTH            a call          inquest://RUN/chain/PID/TID/TS/DEPTH   its wakeup chain
//! inquest://RUN/gap/PID/TID/TS                   a launch gap    inquest://RUN/block/PID/DEVICE/ADDR/TS a block at an instant
//! inquest://RUN/finding/KIND[/PID]               a finding       inquest://RUN/sql?q=QUERY              the rows of a query
//! inquest://-/ask/TOOL?arguments=JSON            the answer of a tool
//! inquest://-/library[/VIEW]                     the SQL library inquest://-/skill                      how to investigate
//! ```
//! RUN is the path of a run below its root, as one part. Characters other than letters, digits, `-`, `.`, `_` and `~` are
//! percent-encoded. Times are nanoseconds of the trace clock.

use std::{fmt, str::FromStr};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value};

use crate::questions::thing::{CallKey, Thing};

/// What every id begins with.
pub const SCHEME: &str = "inquest://";
/// What stands in the place of a run in ids of the server itself.
const SERVER: &str = "-";
/// The characters that are encoded.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// An id of evidence.
#[derive(Clone, Debug, PartialEq)]
pub enum Id {
    /// A run.
    Run(String),
    /// A thing of a run.
    Thing(String, Thing),
    /// The findings of a kind in a run, of one process if it is given.
    Finding {
        /// The run.
        run: String,
        /// Kind of the finding.
        kind: String,
        /// The process; `None` if the finding is about several or none.
        pid: Option<i64>,
    },
    /// The rows of a query.
    Sql {
        /// The run.
        run: String,
        /// The query.
        query: String,
    },
    /// The answer of a tool.
    Ask {
        /// Name of the tool.
        tool: String,
        /// Its arguments.
        arguments: Map<String, Value>,
    },
    /// The views of the SQL library.
    Library,
    /// One view of the SQL library.
    View(String),
    /// The text on how to investigate.
    Skill,
}

impl Id {
    /// Creates the id of a query's rows.
    pub fn sql(run: &str, query: impl Into<String>) -> Self {
        Self::Sql { run: run.to_owned(), query: query.into() }
    }
}

/// Encodes one part of a path, or a value.
fn encoded(text: &str) -> String {
    match text {
        // The name of the server must not be that of a run.
        SERVER => "%2D".to_owned(),
        text => utf8_percent_encode(text, ENCODED).to_string(),
    }
}

fn decoded(text: &str) -> Result<String, String> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(std::borrow::Cow::into_owned).map_err(|_| "it is not UTF-8".to_owned())
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is no number of its range"))
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = |f: &mut fmt::Formatter<'_>, run: &str, name: &str, key: &CallKey| {
            let CallKey { pid, tid, ts_ns, depth } = key;
            write!(f, "{SCHEME}{}/{name}/{pid}/{tid}/{ts_ns}/{depth}", encoded(run))
        };
        match self {
            Self::Run(run) => write!(f, "{SCHEME}{}", encoded(run)),
            Self::Thing(run, Thing::Call(key)) => call(f, run, "call", key),
            Self::Thing(run, Thing::Chain(key)) => call(f, run, "chain", key),
            Self::Thing(run, Thing::Gap { pid, tid, ts_ns }) => {
                write!(f, "{SCHEME}{}/gap/{pid}/{tid}/{ts_ns}", encoded(run))
            }
            Self::Thing(run, Thing::Block { pid, device, addr, at_ns }) => {
                write!(f, "{SCHEME}{}/block/{pid}/{device}/{addr}/{at_ns}", encoded(run))
            }
            Self::Finding { run, kind, pid } => {
                write!(f, "{SCHEME}{}/finding/{}", encoded(run), encoded(kind))?;
                pid.map_or(Ok(()), |pid| write!(f, "/{pid}"))
            }
            Self::Sql { run, query } => write!(f, "{SCHEME}{}/sql?q={}", encoded(run), encoded(query)),
            Self::Ask { tool, arguments } => {
                // A map of JSON can always be written as text.
                let arguments = serde_json::to_string(arguments).unwrap_or_default();
                write!(f, "{SCHEME}{SERVER}/ask/{}?arguments={}", encoded(tool), encoded(&arguments))
            }
            Self::Library => write!(f, "{SCHEME}{SERVER}/library"),
            Self::View(name) => write!(f, "{SCHEME}{SERVER}/library/{}", encoded(name)),
            Self::Skill => write!(f, "{SCHEME}{SERVER}/skill"),
        }
    }
}

impl FromStr for Id {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| format!("it does not begin with {SCHEME}"))?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, path) = path.split_once('/').unwrap_or((path, ""));
        let parts = path.split('/').filter(|part| !part.is_empty()).map(decoded);
        let parts: Vec<String> = parts.collect::<Result<_, _>>()?;
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let value = |name: &str| {
            let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            decoded(value.ok_or_else(|| format!("it lacks {name}="))?)
        };
        let key = |pid: &str, tid: &str, ts: &str, depth: &str| -> Result<CallKey, String> {
            Ok(CallKey { pid: number(pid)?, tid: number(tid)?, ts_ns: number(ts)?, depth: number(depth)? })
        };
        if host == SERVER {
            return match parts.as_slice() {
                ["ask", tool] => {
                    let arguments =
                        serde_json::from_str(&value("arguments")?).map_err(|error| error.to_string())?;
                    Ok(Self::Ask { tool: (*tool).to_owned(), arguments })
                }
                ["library"] => Ok(Self::Library),
                ["library", view] => Ok(Self::View((*view).to_owned())),
                ["skill"] => Ok(Self::Skill),
                _ => Err("the server has no such resource".to_owned()),
            };
        }
        let run = decoded(host)?;
        if run.is_empty() {
            return Err("it names no run".to_owned());
        }
        Ok(match parts.as_slice() {
            [] => Self::Run(run),
            ["call", pid, tid, ts, depth] => Self::Thing(run, Thing::Call(key(pid, tid, ts, depth)?)),
            ["chain", pid, tid, ts, depth] => Self::Thing(run, Thing::Chain(key(pid, tid, ts, depth)?)),
            ["gap", pid, tid, ts] => {
                Self::Thing(run, Thing::Gap { pid: number(pid)?, tid: number(tid)?, ts_ns: number(ts)? })
            }
            ["block", pid, device, addr, at] => {
                let (pid, device) = (number(pid)?, number(device)?);
                Self::Thing(run, Thing::Block { pid, device, addr: number(addr)?, at_ns: number(at)? })
            }
            ["finding", kind] => Self::Finding { run, kind: (*kind).to_owned(), pid: None },
            ["finding", kind, pid] => {
                Self::Finding { run, kind: (*kind).to_owned(), pid: Some(number(pid)?) }
            }
            ["sql"] => Self::Sql { run, query: value("q")? },
            _ => {
                return Err(
                    "a run has call, chain, gap, block, finding and sql, each with what identifies it"
                        .to_owned(),
                );
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn ids(run: String, text: String, numbers: (u32, u32, i64, u64)) -> Vec<Id> {
        let (pid, tid, ts_ns, addr) = numbers;
        let key = CallKey { pid, tid, ts_ns, depth: 2 };
        let arguments = [("run".to_owned(), json!(run)), (text.clone(), json!([1, null]))];
        vec![
            Id::Thing(run.clone(), Thing::Call(key)),
            Id::Thing(run.clone(), Thing::Chain(key)),
            Id::Thing(run.clone(), Thing::Gap { pid, tid, ts_ns }),
            Id::Thing(run.clone(), Thing::Block { pid, device: -1, addr, at_ns: ts_ns }),
            Id::Finding { run: run.clone(), kind: "leak".to_owned(), pid: Some(ts_ns) },
            Id::Finding { run: run.clone(), kind: "leak".to_owned(), pid: None },
            Id::Sql { run: run.clone(), query: text.clone() },
            Id::Ask { tool: "sql".to_owned(), arguments: arguments.into_iter().collect() },
            Id::Run(run),
            Id::Library,
            Id::View(format!("v{text}")),
            Id::Skill,
        ]
    }

    proptest! {
        #[test]
        fn every_id_says_what_it_stands_for(
            run in ".{1,20}", text in any::<String>(), numbers in any::<(u32, u32, i64, u64)>()
        ) {
            for id in ids(run, text, numbers) {
                let shown = id.to_string();
                prop_assert!(shown.bytes().all(|byte| byte.is_ascii_graphic()), "{}", shown);
                prop_assert_eq!(shown.parse::<Id>(), Ok(id));
            }
        }

        #[test]
        fn any_text_is_an_id_or_an_error(text in "(inquest://)?[-a-z0-9/?=&%]{0,40}") {
            if let Ok(id) = text.parse::<Id>() {
                prop_assert_eq!(id.to_string().parse::<Id>(), Ok(id));
            }
        }
    }

    #[test]
    fn an_id_is_readable() {
        let id = Id::Thing("a/b c.parquet".to_owned(), Thing::Gap { pid: 1, tid: 2, ts_ns: -3 });
        assert_eq!(id.to_string(), "inquest://a%2Fb%20c.parquet/gap/1/2/-3");
        for wrong in
            ["", "inquest://", "inquest://r/call/1/2/3", "inquest://r/gap/1/2/x", "inquest://-/x", "http://r"]
        {
            assert!(wrong.parse::<Id>().is_err(), "{wrong}");
        }
        assert_eq!(
            "inquest://r/block/1/0/1/99999999999999999999".parse::<Id>(),
            Err("\"99999999999999999999\" is no number of its range".to_owned())
        );
    }
}
