//! Declares that its instances may be reused, and counts their calls. It uses the SDK.

use std::sync::atomic::{AtomicU64, Ordering};

use toolbay_sdk::context;
use toolbay_sdk::prelude::*;

static CALLS: AtomicU64 = AtomicU64::new(0);

/// Does something, and tells how many calls this instance has answered.
#[tool]
pub fn act(
    /// `nothing`, `keep` (`n` KiB, for ever), `spin` (`n` rounds), `trap`, `fail`, `open` (a handle of the host), `tell`
    /// (`n` events).
    what: String,
    /// How much.
    #[arg(default = 0)]
    n: u64,
) -> Result<String> {
    let calls = CALLS.fetch_add(1, Ordering::SeqCst) + 1;
    match what.as_str() {
        "keep" => std::mem::forget(std::hint::black_box(vec![1_u8; n as usize * 1024])),
        "spin" => (0..n).for_each(|round| {
            std::hint::black_box(round);
        }),
        "trap" => std::arch::wasm32::unreachable(),
        "fail" => return Err(Error::failed(calls.to_string())),
        "open" => std::mem::forget(wasip2::cli::stdout::get_stdout()),
        "tell" => (0..n).for_each(|at| context::progress(&at.to_string(), None)),
        _ => {}
    }
    Ok(calls.to_string())
}

/// Tells how many calls this instance has answered.
#[tool]
pub fn other() -> String {
    (CALLS.fetch_add(1, Ordering::SeqCst) + 1).to_string()
}

plugin! { tools: [act, other], reusable: true }
