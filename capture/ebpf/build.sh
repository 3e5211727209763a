#!/usr/bin/env bash
# Builds the eBPF object. Usage: capture/ebpf/build.sh [--check | --setup]
#   (none)    rebuilds capture/ebpf/capture-ebpf.o, the file that `capture` embeds
#   --check   rebuilds it elsewhere and fails if the committed object differs
#   --setup   installs what the build needs on Debian 12 (root), then stops
# The result depends on the sources and the pinned versions only, not on the path.
set -euo pipefail
cd "$(dirname "$0")"
linker_version=0.13.0
linker_root=${BPF_LINKER_ROOT:-$HOME/.cache/inquest-bpf-linker-$linker_version}

setup() {
  local missing=()
  for package in rustc-web cargo-web rust-web-src llvm-22-dev; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  if ((${#missing[@]})); then
    echo "installing ${missing[*]}"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null
  fi
  if [ ! -x "$linker_root/bin/bpf-linker" ]; then
    echo "building bpf-linker $linker_version"
    # Its work is done by LLVM: neither optimising it nor its debug information changes the object.
    CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_DEBUG=0 LLVM_PREFIX=/usr/lib/llvm-22 cargo install --quiet bpf-linker --version "$linker_version" --locked --no-default-features --features llvm-22 --root "$linker_root"
  fi
}

build() { # build TARGET_DIR: prints the object's path
  # Debian's toolchain brings the sources of core, which a rustup toolchain without rust-src lacks.
  RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 PATH="$linker_root/bin:/usr/bin:/bin" CARGO_TARGET_DIR="$1" \
    CARGO_ENCODED_RUSTFLAGS="-Clinker=$linker_root/bin/bpf-linker"$'\x1f'"-Cdebuginfo=0"$'\x1f'"-Clink-arg=--btf" \
    /usr/bin/cargo build --release --locked --ignore-rust-version -Z build-std=core --target bpfel-unknown-none >&2
  echo "$1/bpfel-unknown-none/release/capture-ebpf"
}

setup
case ${1:-} in
  --setup) ;;
  --check)
    scratch=$(mktemp -d) && trap 'rm -rf "$scratch"' EXIT
    object=$(build "$scratch")
    if ! cmp "$object" capture-ebpf.o; then
      echo "capture/ebpf/capture-ebpf.o is not what its sources build: run capture/ebpf/build.sh and commit" >&2
      exit 1
    fi
    echo "capture-ebpf.o is current" ;;
  "") object=$(build "$PWD/target") && cp "$object" capture-ebpf.o && ls -l capture-ebpf.o ;;
  *) echo "unknown argument: $1" >&2 && exit 2 ;;
esac
