//! Waits, with almost no fuel.

use std::time::Duration;

use guest::wasip2::clocks::monotonic_clock::subscribe_duration;
use guest::{Answer, Args, text, tool};

guest::tools!(tool("sleep", sleep), tool("naps", naps), tool("poll", poll));

/// Waits `ms` once: an hour by default.
fn sleep(args: &Args) -> Answer {
    std::thread::sleep(Duration::from_millis(args.number("ms", 3_600_000)));
    text("slept")
}

/// Waits a millisecond at a time, without end.
fn naps(_: &Args) -> Answer {
    loop {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Polls without end for a second that never starts.
fn poll(_: &Args) -> Answer {
    loop {
        std::hint::black_box(subscribe_duration(1_000_000_000).ready());
    }
}
