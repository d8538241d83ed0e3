//! Limits of the HTTP server and of each client, and of the instructions for models (`[serve.limits]`).

use std::time::Duration;

use crate::limits::table::{LimitTable as _, limit_table};
use crate::problem::PolicyProblem;
use crate::quantity::unit::{Bytes, DAY, Unit};

/// Largest number of connections, requests, sessions or streams. Their tables are in memory.
const MAX_COUNT: u64 = 1_000_000;
/// Longest text for models, in characters.
const MAX_CHARS: u64 = 100_000;
/// Largest total size for all clients, in bytes.
const MAX_BYTES: u64 = 1 << 40;

limit_table! {
    /// Limits of the HTTP server and of each client.
    #[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
    #[serde(from = "ServeLimitsPatch")]
    pub struct ServeLimits {}
    patch ServeLimitsPatch; keys [];

    /// Open connections; never more than half of the process's file descriptors (`ulimit -n`).
    ///
    /// An idle connection uses about 10 KiB.
    connections: u32 as Count = 4096, 1..=MAX_COUNT,
        "the connection that has been idle longest is closed; 503 if none is idle";

    /// Open connections per remote address.
    connections_per_peer: u32 as Count = 1024, 1..=MAX_COUNT, "as above, for this address";

    /// Time that a connection may be idle, and time for the head of a request. A connection with a transfer in
    /// progress is not idle.
    idle_timeout: Duration as Time = Duration::from_secs(60), 1..=DAY, "the connection is closed";

    /// Time for the body of a request.
    body_timeout: Duration as Time = Duration::from_secs(30), 1..=DAY, "408";

    /// Time in which a client must read at least 16 KiB of the data that waits for it.
    write_timeout: Duration as Time = Duration::from_secs(30), 1..=DAY, "the connection is closed";

    /// Headers of a request.
    headers: u32 as Count = 100, 1..=MAX_COUNT, "431";

    /// Size of a request's head; from `8KiB` to `1MiB`.
    header_bytes: u64 as Bytes = 32 << 10, 8 << 10..=1 << 20, "431";

    /// Size of a request's body; from `1KiB` to `1GiB`.
    ///
    /// Twice the default of `args_bytes`.
    body_bytes: u64 as Bytes = 8 << 20, 1 << 10..=1 << 30, "413";

    /// Total size of the request bodies in memory; parsing takes a multiple of it.
    body_bytes_total: u64 as Bytes = 64 << 20, 1 << 10..=MAX_BYTES, "503";

    /// Total size of the request bodies in memory per client; at least `body_bytes`.
    ///
    /// A quarter of the total: two of the largest bodies.
    body_bytes_per_client: u64 as Bytes = 16 << 20, 1 << 10..=MAX_BYTES, "429";

    /// Size of the responses kept one minute for resumption after a broken connection (clients up to 2025-11-25),
    /// plus 4 KiB per stream.
    resume_buffer_bytes: u64 as Bytes = 32 << 20, 0..=MAX_BYTES, "an error instead of the response, or no response";

    /// Size of the responses kept for resumption per client.
    resume_buffer_bytes_per_client: u64 as Bytes = 4 << 20, 0..=MAX_BYTES, "as above";

    /// Requests of all clients in progress.
    requests: u32 as Count = 1024, 1..=MAX_COUNT, "503";

    /// Requests in progress per client.
    requests_per_client: u32 as Count = 256, 1..=MAX_COUNT, "429";

    /// Requests per second and client; a burst may have one second's worth.
    ///
    /// Far above the rate of agents. The session limits stop an agent in an infinite loop.
    requests_per_second: u32 as Count = 10_000, 1..=MAX_COUNT, "429";

    /// Wrong tokens per minute and address; a burst may have one minute's worth. A valid token is always accepted.
    ///
    /// A client with an expired token tries a few times, an attacker thousands of times.
    auth_failures_per_minute: u32 as Count = 60, 1..=MAX_COUNT, "429";

    /// Open streams (`subscriptions/listen`, `GET`) of all clients.
    streams: u32 as Count = 1024, 1..=MAX_COUNT, "503";

    /// Open streams per client.
    streams_per_client: u32 as Count = 64, 1..=MAX_COUNT, "429";

    /// Longest lifetime of a stream.
    stream_age: Duration as Time = Duration::from_secs(3600), 1..=DAY, "the stream ends; the client opens another";

    /// Clients whose usage is tracked.
    clients: u32 as Count = 10_000, 1..=MAX_COUNT, "the client that has been idle longest is dropped; 503 if none is idle";

    /// Sessions of all clients, in both protocol eras.
    sessions: u32 as Count = 4096, 1..=MAX_COUNT,
        "the least recently used 2026-07-28 session is dropped, then an idle one of the same client, then 503";

    /// Sessions per client, over all profiles; also the number of `Toolbay-Session` names that it may use.
    sessions_per_client: u32 as Count = 256, 1..=MAX_COUNT, "as above, for this client; 429";

    /// Time after which an unused session ends.
    ///
    /// Longer than most breaks in a conversation.
    session_idle: Duration as Time = Duration::from_secs(30 * 60), 1..=DAY, "the client starts another session";

    /// Longest lifetime of a session; at most a day.
    session_age: Duration as Time = Duration::from_secs(24 * 3600), 1..=DAY, "as above";

    /// Length of the instructions for models, in characters.
    ///
    /// About 1,000 tokens, which a client adds to every prompt.
    instructions_chars: u32 as Count = 4000, 1..=MAX_CHARS,
        "a longer `instructions` is an error; further plugins are not described";

    /// Length of a plugin's description in the instructions, in characters.
    ///
    /// One sentence.
    plugin_description_chars: u32 as Count = 200, 1..=MAX_CHARS, "it is cut";

    /// Time after a shutdown signal in which the server still accepts requests but reports that it is not ready.
    drain_delay: Duration as Time = Duration::ZERO, 0..=DAY, "the server stops listening";

    /// Time for running requests and detached calls to finish after that.
    drain_grace: Duration as Time = Duration::from_secs(30), 0..=DAY, "they are cancelled, recorded and answered with an error";
}

impl ServeLimits {
    /// Checks the values.
    ///
    /// # Errors
    /// Names the wrong key and its allowed values.
    pub fn check(&self) -> Result<(), PolicyProblem> {
        self.check_ranges()?;
        // The largest body must fit. A default that is too small follows from a large `body_bytes`.
        let (least, defaults) = (self.body_bytes..=MAX_BYTES, Self::default());
        for (key, bytes, default) in [
            ("body_bytes_total", self.body_bytes_total, defaults.body_bytes_total),
            ("body_bytes_per_client", self.body_bytes_per_client, defaults.body_bytes_per_client),
        ] {
            let written = if bytes == default { "body_bytes" } else { key };
            Bytes::check(key, &bytes, &least).map_err(|problem| {
                PolicyProblem::at_keys([written], format!("{problem}: one `body_bytes` must fit"))
            })?;
        }
        Ok(())
    }
}
