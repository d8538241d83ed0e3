//! Waits, with next to no fuel.

use std::time::Duration;

use guest::wasip2::clocks::monotonic_clock::subscribe_duration;
use guest::{Answer, Args, text, tool};

guest::tools!(tool("sleep", sleep), tool("naps", naps), tool("poll", poll));

/// One wait of `ms`: an hour, if nothing is said.
fn sleep(args: &Args) -> Answer {
    std::thread::sleep(Duration::from_millis(args.number("ms", 3_600_000)));
    text("slept")
}

/// Waits of a millisecond, for ever.
fn naps(_: &Args) -> Answer {
    loop {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Asks for ever whether a second is over that never begins.
fn poll(_: &Args) -> Answer {
    loop {
        std::hint::black_box(subscribe_duration(1_000_000_000).ready());
    }
}
