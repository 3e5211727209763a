//! Selects the probes that a recording leaves out, by the names that `--without` accepts.

use std::str::FromStr;

use super::{Event, FunctionProbe, numbered};

/// A value of `--without`, which names at least one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Without(String);

impl Without {
    /// The value as the user wrote it.
    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// Whether a probe is left out: by its symbol, the operation that it reports, the name that the compiler put
    /// into its symbol behind the name's length, or its library.
    pub(crate) fn covers(&self, probe: &FunctionProbe) -> bool {
        let name = self.0.as_str();
        let operation = match probe.event {
            Event::Call(op) | Event::NamingCall(op) => op.name() == name,
            _ => false,
        };
        let mangled = || {
            // The last of the names: the ones before it are namespaces and classes.
            let part = format!("{}{name}", name.len());
            let is_last =
                |at: usize| matches!(probe.symbol.as_bytes().get(at + part.len()), None | Some(b'E'));
            probe.symbol.starts_with("_Z") && probe.symbol.match_indices(&part).any(|(at, _)| is_last(at))
        };
        let library = || probe.library.title().to_lowercase().replace(' ', "-") == name;
        operation || probe.symbol == name || library() || mangled()
    }
}

impl FromStr for Without {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let without = Self(text.to_owned());
        if !text.is_empty() && numbered().any(|(_, probe)| without.covers(probe)) {
            return Ok(without);
        }
        Err("it is neither a function nor a library that `capture probes` lists".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(text: &str) -> Vec<&'static str> {
        let without: Without = text.parse().expect("known");
        numbered().filter(|(_, probe)| without.covers(probe)).map(|(_, probe)| probe.symbol).collect()
    }

    #[test]
    fn a_function_has_its_symbol_and_its_names() {
        assert_eq!(covered("cuMemAlloc"), ["cuMemAlloc_v2"]);
        assert_eq!(covered("cuMemAlloc_v2"), ["cuMemAlloc_v2"]);
        assert_eq!(covered("cudaMalloc"), ["cudaMalloc"]);
        let trace = "_ZN3c104cuda20CUDACachingAllocator6Native22DeviceCachingAllocator12record_trace";
        assert_eq!(covered("record_trace"), [trace]);
        assert_eq!(covered(trace), [trace]);
        assert_eq!(covered("reportMemoryUsageToProfiler").len(), 1);
    }

    #[test]
    fn a_library_is_all_its_functions() {
        for library in ["cuda-runtime", "cuda-driver", "nccl", "nvtx", "pytorch"] {
            assert!(covered(library).len() > 1, "{library}");
        }
        assert!(covered("nccl").iter().all(|symbol| symbol.starts_with("nccl")));
    }

    #[test]
    fn what_is_not_probed_is_an_error() {
        for text in ["", "trace", "cudaMallo", "c10", "12record_trace_", "CUDA driver"] {
            assert!(text.parse::<Without>().is_err(), "{text:?}");
        }
    }
}
