//! A program's standard streams. All three are driven concurrently, so that neither side deadlocks.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};

/// Bytes of a stream that are read and discarded after the kept ones, so that a verbose program can finish. The
/// stream is closed then, which ends a program that would write forever.
const MAX_DROPPED: u64 = 64 << 20;

/// The host's ends of the three pipes, before they are registered with the runtime.
#[derive(Debug)]
pub(super) struct PipeEnds {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

/// Opens three pipes. Returns the host's ends, and the program's in the order of their file descriptors.
pub(super) fn open_pipes() -> io::Result<(PipeEnds, [OwnedFd; 3])> {
    let (in_read, in_write) = io::pipe()?;
    let (out_read, out_write) = io::pipe()?;
    let (err_read, err_write) = io::pipe()?;
    let ends = PipeEnds { stdin: in_write.into(), stdout: out_read.into(), stderr: err_read.into() };
    Ok((ends, [in_read.into(), out_write.into(), err_write.into()]))
}

/// The three pipes of a running program.
#[derive(Debug)]
pub(super) struct Pipes {
    stdin: Sender,
    stdout: Receiver,
    stderr: Receiver,
}

/// The output of a program.
#[derive(Debug)]
pub(super) struct CapturedOutput {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    /// Whether output was discarded.
    pub(super) truncated: bool,
}

impl Pipes {
    pub(super) fn new(ends: PipeEnds) -> io::Result<Self> {
        Ok(Self {
            stdin: Sender::from_owned_fd(ends.stdin)?,
            stdout: Receiver::from_owned_fd(ends.stdout)?,
            stderr: Receiver::from_owned_fd(ends.stderr)?,
        })
    }

    /// Splits into stdin, stdout and stderr.
    pub(super) fn into_parts(self) -> (Sender, Receiver, Receiver) {
        (self.stdin, self.stdout, self.stderr)
    }

    /// Writes `stdin`, and reads the other two streams to their end.
    pub(super) async fn drive(self, stdin: Vec<u8>, max: u64) -> io::Result<CapturedOutput> {
        let Self { stdin: mut writer, stdout, stderr } = self;
        let feed = async move {
            // A program need not read its input.
            drop(writer.write_all(&stdin).await);
        };
        let ((), stdout, stderr) = tokio::join!(feed, read_capped(stdout, max), read_capped(stderr, max));
        let ((stdout, cut_out), (stderr, cut_err)) = (stdout?, stderr?);
        Ok(CapturedOutput { stdout, stderr, truncated: cut_out || cut_err })
    }
}

/// Reads a stream to its end and keeps the first `max` bytes. Returns whether there were more.
async fn read_capped(mut stream: Receiver, max: u64) -> io::Result<(Vec<u8>, bool)> {
    let mut kept = Vec::new();
    (&mut stream).take(max).read_to_end(&mut kept).await?;
    let mut dropped = 0u64;
    let mut buffer = vec![0; 64 << 10];
    while dropped < MAX_DROPPED {
        match stream.read(&mut buffer).await? {
            0 => break,
            n => dropped = dropped.saturating_add(n as u64),
        }
    }
    Ok((kept, dropped > 0))
}
