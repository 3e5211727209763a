//! Readable call stacks: demangled symbols, without the frames that come only from the allocator or the
//! unwinder.

use cpp_demangle::{DemangleOptions, Symbol};

/// A substring of the symbols of PyTorch's allocators. Which of the allocator's functions appear in a stack
/// depends only on whether it had a free block, so its frames are cut off.
const ALLOCATOR: &str = "CachingAllocator";

/// The recursion limit of the C++ demangler. It is deeper than any name in use and bounds the cost of a
/// hostile one.
const DEPTH: u32 = 64;

/// Returns a C++ or Rust symbol as it is written in the source, without parameters. Any other text is
/// returned as it is.
pub fn demangle(symbol: &str) -> String {
    // Rust comes first, because a legacy Rust symbol is also a valid C++ symbol whose last name is a hash.
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        return format!("{name:#}");
    }
    if !symbol.starts_with("_Z") {
        return symbol.to_owned();
    }
    let options = DemangleOptions::new().no_params().no_return_type().recursion_limit(DEPTH);
    let parsed = Symbol::new(symbol).ok();
    parsed.and_then(|parsed| parsed.demangle_with_options(&options).ok()).unwrap_or_else(|| symbol.to_owned())
}

/// Returns the frames of the program itself, outermost first: those before the first frame of the allocator,
/// without addresses that lie in no library (a function without a frame pointer leaves arbitrary values in
/// that register). `frames` is separated by semicolons.
pub fn of_program(frames: &str) -> impl Iterator<Item = &str> {
    frames.split(';').take_while(|frame| !frame.contains(ALLOCATOR)).filter(|frame| !frame.starts_with("0x"))
}

/// Returns the `count` innermost frames of the program, demangled, innermost first, joined by ` < `. The
/// result is empty if no frame is known.
pub fn innermost(frames: &str, count: usize) -> String {
    let named: Vec<&str> = of_program(frames).collect();
    let last: Vec<String> = named.iter().rev().take(count).map(|frame| demangle(frame)).collect();
    last.join(" < ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_in_the_source() {
        assert_eq!(demangle("_ZN2at6detail10empty_cudaEv"), "at::detail::empty_cuda");
        assert_eq!(demangle("main"), "main");
        assert_eq!(demangle("_ZN10tokenizers6encode17h0123456789abcdefE"), "tokenizers::encode");
        assert_eq!(demangle("_RNvCskwGfYPst2Cb_3foo16example_function"), "foo::example_function");
        for broken in ["_Z", "_ZN", "_ZN9999999999E", "_ZSt\u{0}"] {
            assert_eq!(demangle(broken), broken);
        }
        assert_eq!(demangle(&format!("_Z{}", "N".repeat(100_000))).len(), 100_002);
    }

    #[test]
    fn a_stack_ends_where_the_allocator_begins() {
        let frames = "main;0x7ffd37f59b30;_ZN2at5emptyEv;_ZN3c1022CUDACachingAllocator6mallocEv;memcpy";
        assert_eq!(innermost(frames, 3), "at::empty < main");
        assert_eq!(innermost("0x1;c10::CUDACachingAllocator::malloc", 3), "");
    }
}
