//! The same tool behind servers that people use instead, with one client: one call at a time, 64 in flight, the time from
//! the start to the first result, and the resident memory of an idle server. All are measured in one run, alternating.
//!
//! `cargo xtask peers` installs them and lists them in a file, `TOOLBAY_PEERS`. The first server is the baseline. The table
//! shows the message of a server that fails or does not answer, and the others continue.

mod session;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::figures::{FigureSpread, keep, median, print_table, rounds};
use session::PeerSession;

/// How long a side is measured in a round.
const SPAN: Duration = Duration::from_millis(400);
const ROUNDS: usize = 9;
const STARTS: usize = 5;
/// How many calls a server gets before its memory is measured.
const SETTLE: Duration = Duration::from_millis(500);

/// A server from the file.
pub(crate) struct PeerServer {
    name: String,
    /// The sandbox of a call.
    runs: String,
    command: Vec<String>,
    env: BTreeMap<String, String>,
    tool: String,
}

#[derive(Default)]
struct PeerFigures {
    times: Vec<f64>,
    rates: Vec<f64>,
    starts: Vec<f64>,
    resident: Option<f64>,
    failed: Option<String>,
    /// The reason why 64 calls in flight are not measured: some servers lose one from time to time.
    lost: Option<String>,
}

impl PeerFigures {
    /// The measurements, or the failure, after which nothing more is measured.
    fn note<T>(&mut self, result: Result<T, String>) -> Option<T> {
        result.map_err(|why| self.failed = self.failed.take().or(Some(why))).ok()
    }
}

pub(crate) fn run() {
    let servers: Vec<PeerServer> = named("servers").iter().map(PeerServer::of).collect();
    if servers.is_empty() {
        println!("\nno server is named: `cargo xtask peers` does it");
        return;
    }
    let mut measured: Vec<PeerFigures> = servers.iter().map(|_| PeerFigures::default()).collect();
    starts(&servers, &mut measured);
    calls(&servers, &mut measured);
    print_table(&table(&servers, &measured));
    for (server, measured) in servers.iter().zip(measured).filter(|(_, measured)| measured.failed.is_none()) {
        keep(&format!("peer_{}_p50_us", server.name), FigureSpread::of(measured.times).p50);
    }
}

/// One list of the file with the peers; empty if there is none.
pub(crate) fn named(list: &str) -> Vec<Value> {
    let Some(file) = std::env::var_os("TOOLBAY_PEERS") else { return Vec::new() };
    let named: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    named[list].as_array().cloned().unwrap_or_default()
}

/// The strings of a JSON list.
pub(crate) fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|word| word.as_str().map(str::to_owned)).collect()
}

impl PeerServer {
    fn of(named: &Value) -> Self {
        let word = |key: &str| named[key].as_str().unwrap_or_default().to_owned();
        let env = named["env"].as_object().into_iter().flatten();
        Self {
            name: word("name"),
            runs: word("runs"),
            command: strings(&named["command"]),
            env: env
                .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
                .collect(),
            tool: word("tool"),
        }
    }
}

/// From the start of the process to the first correct result. The first round does not count, because some servers compile
/// their code in it.
fn starts(servers: &[PeerServer], measured: &mut [PeerFigures]) {
    for round in 0..=rounds(STARTS) {
        for (server, measured) in servers.iter().zip(&mut *measured).filter(|(_, m)| m.failed.is_none()) {
            let start = Instant::now();
            let ended = PeerSession::open(server).map(|_| start.elapsed().as_secs_f64() * 1e3);
            if let Some(ms) = measured.note(ended)
                && round > 0
            {
                measured.starts.push(ms);
            }
        }
    }
}

/// One call at a time comes first for all servers: a server that loses one of many calls is stopped, and has figures by then.
fn calls(servers: &[PeerServer], measured: &mut [PeerFigures]) {
    let mut sessions: Vec<Option<PeerSession>> =
        servers.iter().zip(&mut *measured).map(|(server, measured)| open(server, measured)).collect();
    in_turns(&mut sessions, measured, |session, measured, counts| {
        let times = session.one_by_one(SPAN);
        let times = measured.note(times)?;
        counts.then(|| measured.times.extend(times))
    });
    in_turns(&mut sessions, measured, |session, measured, counts| {
        let rate = session.in_flight(SPAN).map_err(|why| measured.lost = Some(why)).ok()?;
        counts.then(|| measured.rates.push(rate))
    });
}

/// Runs a step with each server in each round while it succeeds. The first round warms caches and does not count.
fn in_turns(
    sessions: &mut [Option<PeerSession>],
    measured: &mut [PeerFigures],
    mut work: impl FnMut(&mut PeerSession, &mut PeerFigures, bool) -> Option<()>,
) {
    for round in 0..=rounds(ROUNDS) {
        for (session, measured) in sessions.iter_mut().zip(&mut *measured) {
            let Some(session) = session.as_mut() else { continue };
            if measured.failed.is_none() && measured.lost.is_none() {
                work(session, measured, round > 0);
            }
        }
    }
}

fn open(server: &PeerServer, measured: &mut PeerFigures) -> Option<PeerSession> {
    if measured.failed.is_some() {
        return None;
    }
    let session = measured.note(PeerSession::open(server))?;
    std::thread::sleep(SETTLE);
    measured.resident = session.resident_mb();
    Some(session)
}

fn table(servers: &[PeerServer], measured: &[PeerFigures]) -> String {
    let mut text = "\n| over stdio, echo of 100 bytes | a call runs | p50 µs | p99 µs | ratio of p50 | 64 in flight, calls/s | ratio | first answer, ms | resident, MB |\n|---|---|---|---|---|---|---|---|---|\n".to_owned();
    let figures = |measured: &PeerFigures| {
        let FigureSpread { p50, p99 } = FigureSpread::of(measured.times.clone());
        let [rate, start] = [&measured.rates, &measured.starts].map(|list| median(&mut list.clone()));
        [p50, p99, rate, start]
    };
    let first = measured.first().filter(|m| m.failed.is_none()).map(figures);
    for (server, measured) in servers.iter().zip(measured) {
        let (name, runs) = (&server.name, &server.runs);
        if let Some(why) = &measured.failed {
            text += &format!("| {name} | {runs} | failed: {} | | | | | | |\n", why.replace('|', "\\|"));
            continue;
        }
        let [p50, p99, rate, start] = figures(measured);
        let [slower, faster] = first.map_or(["–".to_owned(), "–".to_owned()], |[of, _, many, _]| {
            [format!("{:.2}", p50 / of), format!("{:.2}", rate / many)]
        });
        let resident = measured.resident.unwrap_or_default();
        let many = match &measured.lost {
            Some(why) => format!("lost a call: {} | –", why.replace('|', "\\|")),
            None => format!("{rate:.0} | {faster}"),
        };
        text += &format!(
            "| {name} | {runs} | {p50:.0} | {p99:.0} | {slower} | {many} | {start:.0} | {resident:.0} |\n"
        );
    }
    text
}
