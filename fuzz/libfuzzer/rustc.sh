#!/bin/sh
# The compiler as cargo calls it (RUSTC_WRAPPER), with libFuzzer's instrumentation for the crates that read foreign bytes. The
# rest, such as DataFusion's planner, would only take time: after every input, libFuzzer looks at all counters there are.
# These flags are stable; `cargo fuzz` passes the same ones.
set -eu
rustc=$1
shift
case "${CARGO_PKG_NAME:-}" in
  analyze | analyze-* | arrow-* | capture | capture-wire | cpp_demangle | csv | csv-core | flate2 | inquest-fuzz | miniz_oxide \
    | object | parquet | rustc-demangle | serde_json | toml | toml_parser | trace-schema | trace-writer)
    case " $* " in
      *" --crate-name build_script_"* | *" --crate-type proc-macro "* | *" --print"*) ;;
      *)
        set -- "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
          -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
          -Cllvm-args=-sanitizer-coverage-trace-compares
        ;;
    esac
    ;;
esac
exec "$rustc" "$@"
