//! `toolbay output`.

use std::io::Write;

use anyhow::{Error, Result};
use serde_json::json;
use toolbay::core::session::spool::question::{self, Pattern, Question};
use toolbay::core::session::spool::{Quota, Spool, SpoolId, Spooled};
use toolbay::policy::text::visible;
use toolbay::{FileSpool, Session};

use crate::command::args::{OutputArgs, SetupArgs};
use crate::command::setup;
use crate::{Verdict, output};

pub(crate) async fn run(args: &SetupArgs, which: &OutputArgs) -> Result<Verdict> {
    let quota = Quota::from(setup::policy(args)?.host());
    let spool = FileSpool::new(&setup::state_dir(args)?, quota);
    let session = Session::named(&which.session);
    let key = session.key().unwrap_or_default();
    let Some(id) = &which.id else {
        list(&spool.list(key).await, which.json)?;
        return Ok(Verdict::Good);
    };
    let asked = question(which).map_err(Error::msg)?;
    let kept = match SpoolId::parse(id) {
        Some(id) => spool.get(key, &id).await,
        None => None,
    };
    let Some(kept) = kept else {
        output::complain(&format!(
            "no text `{id}` is kept for the session `{}`; see `toolbay output --session NAME`",
            which.session
        ));
        return Ok(Verdict::Bad);
    };
    match asked {
        None => print(&kept.text)?,
        Some(question) => print(&question::answer(&kept.text, &question, usize::MAX))?,
    }
    Ok(Verdict::Good)
}

/// A text for a person, or as it is for the next command in a pipe.
fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if output::stdout_is_terminal() {
        out.write_all(visible(text).as_bytes())?;
    } else {
        out.write_all(text.as_bytes())?;
    }
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()
}

fn list(kept: &[Spooled], json: bool) -> std::io::Result<()> {
    let mut out = output::out();
    if json {
        let rows: Vec<_> = kept
            .iter()
            .map(|kept| json!({"id": kept.id.as_str(), "tool": &*kept.tool, "bytes": kept.bytes}))
            .collect();
        return writeln!(out, "{}", serde_json::Value::from(rows));
    }
    for Spooled { id, tool, bytes } in kept {
        writeln!(out, "{id}\t{}\t{bytes} bytes", visible(tool))?;
    }
    Ok(())
}

/// What is asked; `None`: the whole text.
fn question(which: &OutputArgs) -> Result<Option<Question>, String> {
    Ok(Some(match which {
        OutputArgs { head: Some(count), .. } => Question::Head(*count),
        OutputArgs { tail: Some(count), .. } => Question::Tail(*count),
        OutputArgs { range: Some(range), .. } => {
            let (from, to) = span(range).ok_or_else(|| format!("--range `{range}`: write `10:20`"))?;
            Question::Lines(from, to)
        }
        OutputArgs { chars: Some(range), .. } => {
            let (from, to) = span(range).ok_or_else(|| format!("--chars `{range}`: write `1:4000`"))?;
            Question::Chars(from, to)
        }
        OutputArgs { grep: Some(words), regex, ignore_case, around, .. } => {
            let pattern = Pattern::new(words, *regex, *ignore_case);
            Question::Grep { pattern: pattern.map_err(|e| format!("--grep: {e}"))?, around: *around }
        }
        OutputArgs { size: true, .. } => Question::Size,
        _ => return Ok(None),
    }))
}

/// `A:B`, where either may be left out.
fn span(range: &str) -> Option<(usize, usize)> {
    let (from, to) = range.split_once(':')?;
    let number = |text: &str, default| if text.is_empty() { Some(default) } else { text.parse().ok() };
    Some((number(from, 1)?, number(to, usize::MAX)?))
}

#[cfg(test)]
mod tests {
    use super::span;

    #[test]
    fn a_span_may_leave_out_an_end() {
        for (text, expect) in [
            ("10:20", Some((10, 20))),
            (":20", Some((1, 20))),
            ("10:", Some((10, usize::MAX))),
            (":", Some((1, usize::MAX))),
            ("10", None),
            ("a:b", None),
            ("-1:2", None),
        ] {
            assert_eq!(span(text), expect, "{text}");
        }
    }
}
