//! A program's streams. All three move at once, so that neither side waits for the other for ever.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};

/// Bytes of a stream that are read and thrown away once as many as wanted are kept: a program that says much comes to
/// its end. Then the stream is closed, which ends a program that would never stop.
const MAX_DROPPED: u64 = 64 << 20;

/// Our ends of the three pipes, before the runtime knows them.
#[derive(Debug)]
pub(super) struct Ends {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

/// Opens three pipes: our ends, and the program's in the order of their numbers.
pub(super) fn open() -> io::Result<(Ends, [OwnedFd; 3])> {
    let (in_read, in_write) = io::pipe()?;
    let (out_read, out_write) = io::pipe()?;
    let (err_read, err_write) = io::pipe()?;
    let ends = Ends { stdin: in_write.into(), stdout: out_read.into(), stderr: err_read.into() };
    Ok((ends, [in_read.into(), out_write.into(), err_write.into()]))
}

/// The three pipes of a running program.
#[derive(Debug)]
pub(super) struct Pipes {
    stdin: Sender,
    stdout: Receiver,
    stderr: Receiver,
}

/// What a program said.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    /// Something was said that is not here.
    pub(super) truncated: bool,
}

impl Pipes {
    pub(super) fn new(ends: Ends) -> io::Result<Self> {
        Ok(Self {
            stdin: Sender::from_owned_fd(ends.stdin)?,
            stdout: Receiver::from_owned_fd(ends.stdout)?,
            stderr: Receiver::from_owned_fd(ends.stderr)?,
        })
    }

    /// The three by themselves: stdin, stdout, stderr.
    pub(super) fn into_parts(self) -> (Sender, Receiver, Receiver) {
        (self.stdin, self.stdout, self.stderr)
    }

    /// Writes `stdin`, and reads the other two to their end.
    pub(super) async fn drive(self, stdin: Vec<u8>, most: u64) -> io::Result<Output> {
        let Self { stdin: mut writer, stdout, stderr } = self;
        let feed = async move {
            // A program need not read what it is given.
            drop(writer.write_all(&stdin).await);
        };
        let ((), stdout, stderr) = tokio::join!(feed, keep(stdout, most), keep(stderr, most));
        let ((stdout, cut_out), (stderr, cut_err)) = (stdout?, stderr?);
        Ok(Output { stdout, stderr, truncated: cut_out || cut_err })
    }
}

/// Reads a stream to its end and keeps the first `most` bytes; tells whether there were more.
async fn keep(mut stream: Receiver, most: u64) -> io::Result<(Vec<u8>, bool)> {
    let mut kept = Vec::new();
    (&mut stream).take(most).read_to_end(&mut kept).await?;
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
