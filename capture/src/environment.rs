//! The environment variables of a process that decide how its GPU memory is managed.
//!
//! An environment also holds passwords and tokens, so this list is all that is ever kept of it. The kernel shows it
//! as it was when the program started: what a program then sets for itself is not in there.

use std::{collections::BTreeMap, fs};

/// The variables that are kept. Any other name is dropped where it is read.
const NAMES: [&str; 11] = [
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUBLASLT_WORKSPACE_SIZE",
    "TORCH_CUBLASLT_UNIFIED_WORKSPACE",
    "NCCL_BUFFSIZE",
    "NCCL_CUMEM_ENABLE",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_MODULE_LOADING",
];

/// The kept variables of a process, as its program was started with them; empty if they cannot be read.
pub(crate) fn memory_settings(pid: u32) -> BTreeMap<String, String> {
    fs::read(format!("/proc/{pid}/environ")).map(|bytes| kept(&bytes)).unwrap_or_default()
}

/// Filters `NAME=value` entries that end with NUL. If a name comes twice, the first value counts, as in `getenv`.
pub(crate) fn kept(environment: &[u8]) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    for entry in environment.split(|byte| *byte == 0) {
        let Some(equals) = entry.iter().position(|byte| *byte == b'=') else {
            continue;
        };
        let (name, value) = (&entry[..equals], &entry[equals + 1..]);
        if let Some(name) = NAMES.iter().find(|known| known.as_bytes() == name) {
            settings.entry((*name).to_owned()).or_insert_with(|| String::from_utf8_lossy(value).into_owned());
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_else_is_kept() {
        let environment = b"AWS_SECRET_ACCESS_KEY=hunter2\0PYTORCH_CUDA_ALLOC_CONF=a:1,b:[x=y]\0\
            MY_PYTORCH_CUDA_ALLOC_CONF=no\0PYTORCH_CUDA_ALLOC_CONF_TOKEN=no\0pytorch_alloc_conf=no\0CUDA_VISIBLE_DEVICES=\0\
            PYTORCH_CUDA_ALLOC_CONF=second\0NCCL_BUFFSIZE\0=\0\0NCCL_CUMEM_ENABLE=\xff0";
        let settings: Vec<_> = kept(environment).into_iter().collect();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            settings,
            [
                pair("CUDA_VISIBLE_DEVICES", ""),
                pair("NCCL_CUMEM_ENABLE", "\u{fffd}0"),
                pair("PYTORCH_CUDA_ALLOC_CONF", "a:1,b:[x=y]"),
            ]
        );
    }

    #[test]
    fn a_process_that_is_gone_has_none() {
        assert!(memory_settings(u32::MAX).is_empty());
    }
}
