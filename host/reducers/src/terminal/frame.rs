//! The lines that our tools put around the output of a program: exit status, truncation, the start of stderr. No
//! strategy sees them, and those at the end are unchanged.
//!
//! ```text
//! M  a.rs
//! [stderr]                                   the heading of the second stream
//! warning: …
//! [it said more than the host keeps]         the end
//! [exit code 0]
//! ```

use super::Strategy;
use crate::cut::{chars, ends};

/// The heading before stderr.
const STDERR: &str = "[stderr]";
/// The most characters of stderr that stay beside a recognised stdout.
const MOST_STDERR_CHARS: usize = 2048;

/// Applies a strategy to the program's output, and restores the lines around it.
pub(super) fn around(text: &str, most: usize, strategy: Strategy) -> Option<String> {
    let (body, end) = split(text);
    let most = most.saturating_sub(chars(end) + 1);
    let shown = strategy(body, most).or_else(|| {
        let (stdout, stderr) = streams(body)?;
        // Many programs split their report between both streams.
        let together = strategy(&format!("{stdout}{stderr}"), most);
        together.or_else(|| beside(stdout, stderr, most, strategy))
    })?;
    Some(if end.is_empty() { shown } else { format!("{}\n{end}", shown.trim_end_matches('\n')) })
}

/// Reduces stdout by the strategy, and keeps the end of stderr.
fn beside(stdout: &str, stderr: &str, most: usize, strategy: Strategy) -> Option<String> {
    let room = (most / 2).min(MOST_STDERR_CHARS);
    let kept = ends(stderr, room).unwrap_or_else(|| stderr.to_owned());
    let shown = strategy(stdout, most.saturating_sub(chars(&kept) + STDERR.len() + 2))?;
    Some(format!("{}\n{STDERR}\n{kept}", shown.trim_end_matches('\n')))
}

/// Splits the program's output from our lines after it.
fn split(text: &str) -> (&str, &str) {
    let mut body = text;
    loop {
        let trimmed = body.trim_end_matches(['\n', '\r']);
        let start = trimmed.rfind('\n').map_or(0, |at| at + 1);
        match trimmed.get(start..).filter(|line| is_end(line)) {
            Some(_) => body = trimmed.get(..start).unwrap_or_default(),
            None => break,
        }
    }
    let end = text.get(body.len()..).unwrap_or_default();
    (body, end.trim_end_matches(['\n', '\r']))
}

/// Whether our tools write this line after an output.
fn is_end(line: &str) -> bool {
    let code = line.strip_prefix("[exit code ").and_then(|rest| rest.strip_suffix(']'));
    let is_code = code.is_some_and(|code| code.parse::<i32>().is_ok());
    is_code || matches!(line, "[ended by a signal]" | "[it said more than the host keeps]")
}

/// Both streams, if there is a heading between them.
fn streams(body: &str) -> Option<(&str, &str)> {
    let heading = format!("{STDERR}\n");
    if let Some(stderr) = body.strip_prefix(&heading) {
        return Some(("", stderr));
    }
    let at = body.find(&format!("\n{heading}"))? + 1;
    Some((body.get(..at)?, body.get(at + heading.len()..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_ours_and_the_rest_is_the_programs() {
        for (text, body, end) in [
            ("M  a\n[exit code 0]", "M  a\n", "[exit code 0]"),
            (
                "M  a\n[it said more than the host keeps]\n[ended by a signal]\n",
                "M  a\n",
                "[it said more than the host keeps]\n[ended by a signal]",
            ),
            ("M  a\n[exit code x]", "M  a\n[exit code x]", ""),
            ("[exit code 0]\nM  a", "[exit code 0]\nM  a", ""),
            ("[exit code 1]", "", "[exit code 1]"),
            ("", "", ""),
        ] {
            assert_eq!(split(text), (body, end), "{text}");
        }
    }

    #[test]
    fn a_heading_is_between_two_streams() {
        assert_eq!(streams("a\n[stderr]\nb\n"), Some(("a\n", "b\n")));
        assert_eq!(streams("[stderr]\nb"), Some(("", "b")));
        assert_eq!(streams("a [stderr]\nb"), None);
    }
}
