//! How much of the server each may take (`[serve.limits]`).

use std::time::Duration;

use crate::limits::table::{LimitTable as _, limit_table};
use crate::quantity::unit::{Bytes, DAY, Unit};

/// Most connections, requests, sessions or streams that can be allowed: their tables are held in memory.
const MAX_COUNT: u64 = 1_000_000;
/// Most bytes of all clients together.
const MAX_BYTES: u64 = 1 << 40;

limit_table! {
    /// How much of the server each may take.
    #[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
    #[serde(from = "ServeLimitsPatch")]
    pub struct ServeLimits {}
    patch ServeLimitsPatch; keys [];

    /// Connections that are open at once; never more than half of the descriptors that the process may have (`ulimit -n`).
    ///
    /// An idle connection takes some ten KiB.
    connections: u32 as Count = 4096, 1..=MAX_COUNT,
        "the connection that has been idle longest is closed; 503 if none is idle";

    /// The same, of one address.
    connections_per_peer: u32 as Count = 1024, 1..=MAX_COUNT, "the same, of this address";

    /// How long a connection may be idle, and how long the head of a request may take from then on; one that uploads, or is
    /// written to, is not idle.
    idle_timeout: Duration as Time = Duration::from_secs(60), 1..=DAY, "it is closed";

    /// How long the body of a request may take.
    body_timeout: Duration as Time = Duration::from_secs(30), 1..=DAY, "408";

    /// How long a client may leave unread what is written to it; in this time it must read 16 KiB of what waits.
    write_timeout: Duration as Time = Duration::from_secs(30), 1..=DAY, "the connection is closed";

    /// Headers of a request.
    headers: u32 as Count = 100, 1..=MAX_COUNT, "431";

    /// Bytes of a request's head; from `8KiB` to `1MiB`.
    header_bytes: u64 as Bytes = 32 << 10, 8 << 10..=1 << 20, "431";

    /// Bytes of a request's body; from `1KiB` to `1GiB`.
    ///
    /// Twice the default of `args_bytes`.
    body_bytes: u64 as Bytes = 8 << 20, 1 << 10..=1 << 30, "413";

    /// Bytes of all bodies that are held at once; parsing them takes a multiple.
    body_bytes_total: u64 as Bytes = 64 << 20, 1 << 10..=MAX_BYTES, "503";

    /// The same, of one client; at least `body_bytes`.
    ///
    /// A quarter: two of the largest.
    body_bytes_per_client: u64 as Bytes = 16 << 20, 1 << 10..=MAX_BYTES, "429";

    /// Answers for clients up to 2025-11-25 whose connections broke, kept for a minute, and 4 KiB for each such stream.
    resume_buffer_bytes: u64 as Bytes = 32 << 20, 0..=MAX_BYTES, "an error in place of the answer, or nothing";

    /// The same, of one client.
    resume_buffer_bytes_per_client: u64 as Bytes = 4 << 20, 0..=MAX_BYTES, "the same";

    /// Requests of all clients that run at once.
    requests: u32 as Count = 1024, 1..=MAX_COUNT, "503";

    /// The same, of one client.
    requests_per_client: u32 as Count = 256, 1..=MAX_COUNT, "429";

    /// Requests of one client a second; a second's worth may come at once.
    ///
    /// Far above what agents do; one that loops is stopped by the session's budget.
    requests_per_second: u32 as Count = 10_000, 1..=MAX_COUNT, "429";

    /// Wrong tokens from one address a minute; a minute's worth may come at once. A valid token is let in all the same.
    ///
    /// A client whose token has just expired tries a few times; an attacker tries thousands of times.
    auth_failures_per_minute: u32 as Count = 60, 1..=MAX_COUNT, "429";

    /// Streams (`subscriptions/listen`, `GET`) of all clients that are open at once.
    streams: u32 as Count = 1024, 1..=MAX_COUNT, "503";

    /// The same, of one client.
    streams_per_client: u32 as Count = 64, 1..=MAX_COUNT, "429";

    /// How long a stream stays open.
    stream_age: Duration as Time = Duration::from_secs(3600), 1..=DAY, "it ends; the client opens another";

    /// Clients that are remembered.
    clients: u32 as Count = 10_000, 1..=MAX_COUNT, "the client that has been idle longest is forgotten; 503 if none is idle";

    /// Sessions of all clients, of both eras.
    sessions: u32 as Count = 4096, 1..=MAX_COUNT,
        "the least recently used 2026-07-28 session is dropped; without one, an idle one of the same client; 503 if it has none";

    /// The same, of one client, over all profiles; also how many `Toolbay-Session` names it may use.
    sessions_per_client: u32 as Count = 256, 1..=MAX_COUNT, "the same, of this client; 429";

    /// How long a session is kept that nobody uses.
    ///
    /// Longer than most people are away from a conversation.
    session_idle: Duration as Time = Duration::from_secs(30 * 60), 1..=DAY, "the client begins another";

    /// How long a session is kept at all; at most a day.
    session_age: Duration as Time = Duration::from_secs(24 * 3600), 1..=DAY, "the same";

    /// How long the server goes on as before after it was told to end, and only says that it is not ready.
    drain_delay: Duration as Time = Duration::ZERO, 0..=DAY, "it stops listening";

    /// How long requests, and calls whose clients have left, then have to end.
    drain_grace: Duration as Time = Duration::from_secs(30), 0..=DAY, "they are cancelled, recorded, and answered with an error";
}

impl ServeLimits {
    /// Checks the values.
    ///
    /// # Errors
    /// Names the key and what it may be.
    pub fn check(&self) -> Result<(), String> {
        self.check_ranges()?;
        // The largest body has to fit.
        let least = self.body_bytes..=MAX_BYTES;
        Bytes::check("body_bytes_total", &self.body_bytes_total, &least)?;
        Bytes::check("body_bytes_per_client", &self.body_bytes_per_client, &least)
    }
}
