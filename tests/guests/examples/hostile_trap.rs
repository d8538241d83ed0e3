//! Ends in every way except a result.

use guest::{Answer, Args, ErrorCode, fail, tool};

guest::tools!(tool("trap", trap));

/// `how`: `panic`, `unreachable`, `exit0`, `exit1`, `abort`, `stack`, `bounds` or `signature`.
fn trap(args: &Args) -> Answer {
    match args.text("how", "panic") {
        "panic" => panic!("a panic of the guest"),
        "unreachable" => std::arch::wasm32::unreachable(),
        "exit0" => std::process::exit(0),
        "exit1" => std::process::exit(1),
        "abort" => std::process::abort(),
        "stack" => fail(ErrorCode::ExecutionFailed, dig(args.number("depth", u64::MAX)).to_string()),
        "bounds" => fail(ErrorCode::ExecutionFailed, beyond().to_string()),
        "signature" => fail(ErrorCode::ExecutionFailed, wrong_signature().to_string()),
        other => fail(ErrorCode::InputInvalid, format!("no way `{other}`")),
    }
}

/// Recurses, and needs each frame afterwards.
#[inline(never)]
fn dig(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    if depth == 0 {
        return frame[0];
    }
    dig(depth - 1).wrapping_add(std::hint::black_box(frame)[63])
}

/// Reads the last byte of the address space.
fn beyond() -> u8 {
    let address = std::hint::black_box(u32::MAX as usize) as *const u8;
    unsafe { address.read_volatile() }
}

/// Calls a function with a wrong type.
fn wrong_signature() -> u64 {
    let wrong = unsafe { std::mem::transmute::<fn(u64) -> u64, fn(f32, f64) -> u64>(dig) };
    std::hint::black_box(wrong)(1.0, 1.0)
}
