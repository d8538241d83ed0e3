//! Computes, to measure the cost of interruption and of metering. Also returns long results.

use guest::{Answer, Args, compute, text, tool};

guest::tools!(tool("fib", fib), tool("sha256", sha256), tool("json", json), tool("text", long));

/// The `n`th Fibonacci number, by recursion.
fn fib(args: &Args) -> Answer {
    text(compute::fib(args.number("n", 24) as u32).to_string())
}

/// SHA-256 of `n` zeros.
fn sha256(args: &Args) -> Answer {
    text(format!("{:08x}", compute::sha256_of_zeros(args.number("n", 100) as usize)[0]))
}

/// Parses a text of `n` records, five times.
fn json(args: &Args) -> Answer {
    let records = compute::records(args.number("n", 600) as usize);
    text((0..5).map(|_| compute::members(&records)).sum::<usize>().to_string())
}

/// A text of `n` bytes in one allocation.
fn long(args: &Args) -> Answer {
    text("x".repeat(args.number("n", 100) as usize))
}
