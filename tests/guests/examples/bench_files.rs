//! Reads one file repeatedly, to be measured.

use guest::host::files;
use guest::{Answer, Args, text, tool};

guest::tools!(tool("read", read).needs(&[("fs-read", "**", false)]));

/// Reads `path` `n` times and returns the number of bytes.
fn read(args: &Args) -> Answer {
    let mut bytes = 0;
    for _ in 0..args.number("n", 1) {
        match files::read(args.text("path", ""), 0, None) {
            Ok(file) => bytes += file.data.len(),
            Err(error) => return text(format!("{error:?}")),
        }
    }
    text(bytes.to_string())
}
