//! Pseudo terminals for tests of the terminal form.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

/// How a question of the command line ends.
const QUESTIONS: [&[u8]; 2] = [b"[y/N] ", b"[y/N/edit] "];

/// Runs a command with a terminal as its three streams, and types each answer after a question. Returns the exit code
/// and what the terminal showed.
pub(crate) fn run(mut command: Command, columns: u16, answers: &[&str]) -> (i32, String) {
    let (mut master, slave) = open(columns);
    let stream = || Stdio::from(slave.try_clone().unwrap());
    let mut child = command.stdin(stream()).stdout(stream()).stderr(stream()).spawn().unwrap();
    // With this end open, reading would not end with the child.
    drop((command, slave));
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    for answer in answers {
        while !QUESTIONS.iter().any(|question| bytes.ends_with(question)) {
            let count = master.read(&mut part).unwrap();
            bytes.extend_from_slice(&part[..count]);
        }
        master.write_all(answer.as_bytes()).unwrap();
        // The terminal echoes the answer, so the same question does not end the output again.
        let count = master.read(&mut part).unwrap();
        bytes.extend_from_slice(&part[..count]);
    }
    // The last read fails with `EIO`: the child has closed its end.
    master.read_to_end(&mut bytes).ok();
    let code = child.wait().unwrap().code().unwrap();
    (code, String::from_utf8(bytes).unwrap().replace("\r\n", "\n"))
}

/// Opens a pseudo terminal: the end of the test, and that of the program.
fn open(columns: u16) -> (File, File) {
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    rustix::pty::grantpt(&master).unwrap();
    rustix::pty::unlockpt(&master).unwrap();
    let size = Winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&master, size).unwrap();
    let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
    let slave =
        rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    (File::from(master), File::from(slave))
}
