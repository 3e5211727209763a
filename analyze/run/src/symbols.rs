//! Call stacks for reading: names as the source has them, without what only the allocator and the unwinder put there.

use cpp_demangle::{DemangleOptions, Symbol};

/// In the symbols of PyTorch's allocators: which of their functions hands a block out depends on whether it has one left.
const ALLOCATOR: &str = "CachingAllocator";

/// Deeper than any name in use; a hostile one costs no more.
const DEPTH: u32 = 64;

/// A symbol as its source has it, without parameters; what is no symbol of C++ or Rust stays.
pub fn demangle(symbol: &str) -> String {
    // First, as older Rust's symbols are C++ ones with a hash for a last name.
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

/// Frames that name what a program did, outermost first: up to the allocator, without addresses that lie in no library
/// (what a function without frame pointer had in that register).
pub fn of_program(frames: &str) -> impl Iterator<Item = &str> {
    frames.split(';').take_while(|frame| !frame.contains(ALLOCATOR)).filter(|frame| !frame.starts_with("0x"))
}

/// The innermost of them, innermost first; empty: none is known.
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
