//! Texts that people write for `analyze`, and texts that processes write for `capture`.

use super::files::file;
use crate::mutate::frames;

/// Returns gate files.
pub fn gates() -> Vec<Vec<u8>> {
    let all = "# What may not get worse.\nalpha = 0.05\nresolution = \"2%\"\ngates = [\n  \"wall_ns < +5%\",\n  \
               \"p99(cudaLaunchKernel) < +5% floor 2us\",\n  \"calls_ns(cudaMemcpyAsync; h2d, 2^24 bytes) < +64MiB\",\n  \
               \"copy_rate_bytes(*) > -5%\",\n]\n";
    vec![all.into(), b"gates = [\"wall_ns < +5%\"]".to_vec()]
}

/// Returns query files, of which one declares metrics and one has parameters.
pub fn queries() -> Vec<Vec<u8>> {
    let metrics = "-- metrics_frees: one row per run: how long freeing device memory took.\n-- needs: events\n-- columns:\n\
                   --   run       string  -   Name of the run.\n--   frees_ns  int64   ns  Sum of the durations.\n\
                   -- metrics:\n--   frees_ns  lower  1ms  ns, 0 if absent\nSELECT run, sum(dur) AS frees_ns FROM events GROUP BY run\n";
    let params = "-- slow: calls of at least a length.\n-- needs: events\n-- params:\n--   least  ns  10ms  The least length.\n\
                  -- columns:\n--   ts  int64  ns  Start.\nSELECT ts FROM events WHERE dur >= $least\n";
    let own =
        ["queries/core/threads.sql", "queries/core/lost_events.sql", "queries/core/stacks.sql"].map(file);
    [vec![metrics.into(), params.into()], own.into()].concat()
}

/// Returns lists of requests for `analyze what-if --requests`.
pub fn requests() -> Vec<Vec<u8>> {
    vec![b"bytes,name\n512,a\n\n 1048576 , layers.0.weight\n2097153,b\n".to_vec(), b"20971520\n".to_vec()]
}

/// Returns symbols of C++ and Rust, a frame a line, and stacks of them.
pub fn symbols() -> Vec<Vec<u8>> {
    let names = "_ZN2at6detail10empty_cudaEv\n_ZNSt6vectorIiSaIiEE9push_backEOi\n_ZN10tokenizers6encode17h0123456789abcdefE\n\
                 _RNvCskwGfYPst2Cb_3foo16example_function\n_ZN3c104cuda20CUDACachingAllocator6NativeL9allocatorE\n\
                 _ZNKSt8functionIFvvEEclEv\n_Z3fooIXadL_Z3barvEEEvv\nmain\n";
    let stack = "main;0x7ffd37f59b30;_ZN2at5emptyEv;_ZN3c1022CUDACachingAllocator6mallocEv;memcpy\n";
    vec![names.into(), stack.into()]
}

/// Returns maps of generated code.
pub fn perf_maps() -> Vec<Vec<u8>> {
    vec![b"7f0010 20 py::main:/m.py\n0x7f0100 8 py::step:/a b.py\n10 8 old\n10 8 new\nffffffffffffffff 1 end\n".to_vec()]
}

/// Returns datagrams with marks: the process, the time since the one before in microseconds, and the lines.
pub fn marks() -> Vec<Vec<u8>> {
    let datagrams: [&[u8]; 5] = [
        b"\x01\x0a\0begin epoch 1\n",
        b"\x02\x05\0end epoch 1\nstep",
        b"\x01\x01\0end epoch 1",
        b"\x01\0\0begin a\nbegin a\n",
        b"\x03\xff\xff",
    ];
    vec![frames::join(&datagrams), frames::join(&[&b"\x01\x01\0one point"[..]])]
}

/// Returns texts that describe processes.
pub fn process_texts() -> Vec<Vec<u8>> {
    let container = "3f29c0d5e8f14ab7905512ab34cd56ef78901234abcdef5678901234567890ab";
    vec![
        b"__all__ = ['__version__']\n__version__: str = '2.11.0+cu130'\ncuda = '13.0'\n".to_vec(),
        format!("/kubepods.slice/kubepods-pod0a1b2c3d_4e5f_6789_abcd_ef0123456789.slice/cri-containerd-{container}.scope").into(),
        b"usage_usec 5\nnr_periods 9\nnr_throttled 3\nthrottled_usec 1200\n".to_vec(),
        b"HOME=/root\0PYTORCH_CUDA_ALLOC_CONF=a:1,b:[x=y]\0NCCL_BUFFSIZE=\0CUDA_VISIBLE_DEVICES=0,1\0".to_vec(),
    ]
}

/// Returns command lines, each argument with a NUL at its end.
pub fn command_lines() -> Vec<Vec<u8>> {
    let lines: [&[u8]; 4] = [
        b"train\0--password\0hunter2\0--lr\x000.1\0--hf_token=hf_abc\0",
        b"sh\0-c\0export HF_TOKEN=abc; python t.py --password 'a b' --lr 1\0",
        b"t\0postgres://me:p@ss@host:5432/db\0{\"api_key\": \"a\\\"b\", \"lr\": 1}\0https://h/a?token=abc&b=1\0",
        b"curl -H Authorization: Bearer abc def http://a:b@c/d://e:f@g\0",
    ];
    lines.map(<[u8]>::to_vec).into()
}
