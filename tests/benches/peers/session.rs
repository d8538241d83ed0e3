//! A client of an untrusted server over stdio: a server that ends, fails or is too slow is an error.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::PeerServer;
use crate::floor::ARGS;
use crate::process::{RunningProgram, status_kib};

const ERA: &str = "2025-11-25";
const IN_FLIGHT: usize = 64;
/// The timeout of a step. Some servers lose requests silently.
const MOST: Duration = Duration::from_secs(60);
/// Some servers list a tool before they can call it.
const AGAIN: Duration = Duration::from_millis(2);

pub(super) struct PeerSession {
    child: RunningProgram,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    tool: String,
    next: u64,
}

impl PeerSession {
    /// Starts the server and waits until the tool works.
    pub(super) fn open(server: &PeerServer) -> Result<Self, String> {
        let (program, args) = server.command.split_first().ok_or("no command")?;
        let mut command = Command::new(program);
        command.args(args).envs(&server.env);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("cannot start: {error}"))?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = BufReader::with_capacity(1 << 16, child.stdout.take().ok_or("no output")?);
        let mut session =
            Self { child: RunningProgram(child), input, output, tool: server.tool.clone(), next: 0 };
        session.within(Self::greet)?;
        Ok(session)
    }

    /// The resident memory in MB.
    pub(super) fn resident_mb(&self) -> Option<f64> {
        Some(status_kib(self.child.0.id(), "VmRSS")? as f64 / 1024.0)
    }

    /// Microseconds of each call.
    pub(super) fn one_by_one(&mut self, span: Duration) -> Result<Vec<f64>, String> {
        self.within(|session| {
            let (begun, mut times) = (Instant::now(), Vec::new());
            while begun.elapsed() < span {
                let text = session.call();
                let start = Instant::now();
                session.send(&text)?;
                right(&session.answer()?)?;
                times.push(start.elapsed().as_secs_f64() * 1e6);
            }
            Ok(times)
        })
    }

    /// Calls per second.
    pub(super) fn in_flight(&mut self, span: Duration) -> Result<f64, String> {
        self.within(|session| {
            let (start, mut answered, mut waiting) = (Instant::now(), 0u32, 0);
            loop {
                let more = start.elapsed() < span;
                while more && waiting < IN_FLIGHT {
                    let text = session.call();
                    session.send(&text)?;
                    waiting += 1;
                }
                if waiting == 0 {
                    return Ok(f64::from(answered) / start.elapsed().as_secs_f64());
                }
                right(&session.answer()?)?;
                (waiting, answered) = (waiting - 1, answered + 1);
            }
        })
    }

    /// Runs a step with the server, and stops the server if it takes too long, so that the step ends.
    fn within<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        let (done, wait) = channel::<()>();
        let pid = self.child.0.id().to_string();
        let watch = std::thread::spawn(move || {
            let late = wait.recv_timeout(MOST) == Err(RecvTimeoutError::Timeout);
            late && Command::new("kill").args(["-KILL", &pid]).status().is_ok()
        });
        let result = work(self);
        drop(done);
        match watch.join() {
            Ok(true) => Err(format!("no answer for {} s", MOST.as_secs())),
            _ => result,
        }
    }

    fn greet(&mut self) -> Result<(), String> {
        self.send(&format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{ERA}","capabilities":{{}},"clientInfo":{{"name":"bench","version":"1"}}}}}}"#
        ))?;
        let hello = self.answer()?;
        if !hello.contains("protocolVersion") {
            return Err(cut(&hello));
        }
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)?;
        let start = Instant::now();
        loop {
            let text = self.call();
            self.send(&text)?;
            match right(&self.answer()?) {
                Err(why) if start.elapsed() > MOST / 2 => return Err(why),
                Err(_) => std::thread::sleep(AGAIN),
                Ok(()) => return Ok(()),
            }
        }
    }

    fn call(&mut self) -> String {
        self.next += 1;
        let (id, tool) = (self.next, &self.tool);
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{ARGS}}}}}"#
        )
    }

    fn send(&mut self, text: &str) -> Result<(), String> {
        self.input.write_all(format!("{text}\n").as_bytes()).map_err(|error| format!("it ended: {error}"))
    }

    /// The next response. Notifications are skipped.
    fn answer(&mut self) -> Result<String, String> {
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).map_err(|error| error.to_string())?;
            if read == 0 {
                return Err("it ended".to_owned());
            }
            if !line.contains("\"method\"") {
                return Ok(line);
            }
        }
    }
}

/// Whether the result has this text and is not an error that quotes it.
fn right(answer: &str) -> Result<(), String> {
    let wrong = answer.contains("\"isError\":true") || !answer.contains("\"result\"");
    if wrong || !answer.contains("Lorem ipsum") { Err(cut(answer)) } else { Ok(()) }
}

fn cut(text: &str) -> String {
    text.trim().chars().take(200).collect()
}
