//! Opens handles without closing any, until the host refuses.

use guest::wasip2::cli::{stdin::get_stdin, stdout::get_stdout};
use guest::wasip2::clocks::monotonic_clock::subscribe_duration;
use guest::wasip2::sockets::{network::IpAddressFamily, tcp_create_socket::create_tcp_socket};
use guest::{Answer, Args, text, tool};

guest::tools!(
    tool("pollables", |args| leak(args, || Some(subscribe_duration(u64::MAX / 2)))),
    tool("streams", |args| leak(args, || Some((get_stdin(), get_stdout())))),
    tool("sockets", |args| leak(args, || create_tcp_socket(IpAddressFamily::Ipv4).ok())),
);

/// Leaks `n` handles (ten million by default) and returns how many it got.
fn leak<T>(args: &Args, open: fn() -> Option<T>) -> Answer {
    let mut opened = 0u64;
    while opened < args.number("n", 10_000_000) {
        let Some(handle) = open() else { break };
        std::mem::forget(handle);
        opened += 1;
    }
    text(opened.to_string())
}
