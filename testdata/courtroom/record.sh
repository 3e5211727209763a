#!/usr/bin/env bash
# Records the short scenarios of the courtroom into DIR, as root. Usage: testdata/courtroom/record.sh DIR
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build --workspace --bins --examples
target/debug/courtroom --short --keep "$1"
gzip -9 "$1"/*.truth.jsonl
