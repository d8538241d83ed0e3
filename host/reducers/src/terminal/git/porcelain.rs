//! The short format, and porcelain v1 and v2, with lines or with NUL.

use super::StatusSummary;

/// Parses a status of lines.
pub(super) fn lines(text: &str) -> Option<StatusSummary<'_>> {
    read(text.lines().filter(|line| !line.is_empty()), RenameFormat::InLine)
}

/// Parses a status of `-z`: the old name of a renamed file is a separate entry.
pub(super) fn nul_separated(text: &str) -> Option<StatusSummary<'_>> {
    read(text.split('\0').filter(|entry| !entry.trim().is_empty()), RenameFormat::NextEntry)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RenameFormat {
    InLine,
    NextEntry,
}

fn read<'a>(entries: impl Iterator<Item = &'a str>, renames: RenameFormat) -> Option<StatusSummary<'a>> {
    let mut status = StatusSummary::default();
    let mut entries = entries.peekable();
    let v2 = entries.peek()?.starts_with(['#', '1', '2', 'u']) && !entries.peek()?.starts_with("##")
        || entries.peek()?.starts_with("? ")
        || entries.peek()?.starts_with("! ");
    let mut files = 0usize;
    while let Some(entry) = entries.next() {
        if v2 && entry.starts_with("# ") {
            header(entry, &mut status)?;
        } else if let Some(branch) = entry.strip_prefix("## ").filter(|_| !v2 && files == 0) {
            branch_line(branch, &mut status);
        } else {
            files += 1;
            let old = |entries: &mut dyn Iterator<Item = &'a str>| match renames {
                RenameFormat::NextEntry => entries.next(),
                RenameFormat::InLine => None,
            };
            match v2 {
                true => entry_v2(entry, &mut status, || old(&mut entries))?,
                false => entry_v1(entry, &mut status, renames, || old(&mut entries))?,
            }
        }
    }
    status.clean = files == 0 && status.branch.is_some();
    Some(status)
}

fn entry_v1<'a>(
    entry: &str,
    status: &mut StatusSummary<'_>,
    renames: RenameFormat,
    old: impl FnOnce() -> Option<&'a str>,
) -> Option<()> {
    let mut letters = entry.chars();
    let (x, y) = (letters.next()?, letters.next()?);
    let path = letters.as_str().strip_prefix(' ').filter(|path| !path.is_empty())?;
    let moved = renames == RenameFormat::NextEntry && (matches!(x, 'R' | 'C') || matches!(y, 'R' | 'C'));
    if moved {
        return status.add(x, y, &format!("{} -> {path}", old()?));
    }
    status.add(x, y, path)
}

/// `1 XY sub mH mI mW hH hI path`, `2 XY sub mH mI mW hH hI Xscore path<sep>old`, `u XY sub m1 m2 m3 mW h1 h2 h3 path`,
/// `? path`, `! path` (`git help status`, "Porcelain Format Version 2").
fn entry_v2<'a>(
    entry: &str,
    status: &mut StatusSummary<'_>,
    old: impl FnOnce() -> Option<&'a str>,
) -> Option<()> {
    let (kind, rest) = entry.split_once(' ')?;
    let fields = match kind {
        "?" if !rest.is_empty() => return status.add('?', '?', rest),
        "!" if !rest.is_empty() => return status.add('!', '!', rest),
        "1" => 8,
        "2" => 9,
        "u" => 10,
        _ => return None,
    };
    let mut parts = rest.splitn(fields, ' ');
    let letters = parts.next()?;
    let submodule = parts.next().filter(|sub| sub.len() == 4 && sub.starts_with(['N', 'S']))?;
    let path = parts.nth(fields - 3).filter(|path| !path.is_empty())?;
    let mut letters = letters.chars().map(|letter| if letter == '.' { ' ' } else { letter });
    let (x, y) = (letters.next()?, letters.next()?);
    let path = match kind {
        "2" => match path.split_once('\t') {
            Some((new, old)) => format!("{old} -> {new}"),
            None => format!("{} -> {path}", old()?),
        },
        _ => path.to_owned(),
    };
    status.add(x, y, &format!("{path}{}", changes_inside(submodule)))
}

/// The changes inside a submodule, in the words of the long format.
fn changes_inside(submodule: &str) -> String {
    let what: Vec<&str> = [('C', "new commits"), ('M', "modified content"), ('U', "untracked content")]
        .into_iter()
        .filter(|(letter, _)| submodule.get(1..).is_some_and(|flags| flags.contains(*letter)))
        .map(|(_, words)| words)
        .collect();
    if what.is_empty() { String::new() } else { format!(" ({})", what.join(", ")) }
}

fn header<'a>(entry: &'a str, status: &mut StatusSummary<'a>) -> Option<()> {
    let (key, value) = entry.strip_prefix("# ")?.split_once(' ')?;
    match key {
        "branch.oid" => {}
        "branch.head" if value == "(detached)" => status.branch = Some("no branch".to_owned()),
        "branch.head" => status.branch = Some(format!("on {value}")),
        "branch.upstream" => status.upstream = Some(format!("even with {value}")),
        "branch.ab" => {
            let (ahead, behind) = value.split_once(' ')?;
            let (ahead, behind) = (ahead.strip_prefix('+')?, behind.strip_prefix('-')?);
            let upstream = status.upstream.take()?;
            let upstream = upstream.strip_prefix("even with ")?;
            status.upstream = Some(distance(ahead, behind, upstream));
        }
        _ => status.notes.push(entry),
    }
    Some(())
}

fn distance(ahead: &str, behind: &str, upstream: &str) -> String {
    match (ahead, behind) {
        ("0", "0") => format!("even with {upstream}"),
        (ahead, "0") => format!("ahead {ahead} of {upstream}"),
        ("0", behind) => format!("behind {behind} of {upstream}"),
        _ => format!("ahead {ahead}, behind {behind} of {upstream}"),
    }
}

/// The text after `## `: `main...origin/main [ahead 1, behind 2]`, `HEAD (no branch)`, `No commits yet on main`.
fn branch_line(line: &str, status: &mut StatusSummary<'_>) {
    if line == "HEAD (no branch)" {
        status.branch = Some("no branch".to_owned());
    } else if let Some(branch) = line.strip_prefix("No commits yet on ") {
        status.branch = Some(format!("on {branch}, no commits yet"));
    } else if let Some((branch, upstream)) = line.split_once("...") {
        status.branch = Some(format!("on {branch}"));
        status.upstream = Some(match upstream.split_once(" [") {
            None => format!("even with {upstream}"),
            Some((upstream, "gone]")) => format!("{upstream} is gone"),
            Some((upstream, state)) => format!("{} of {upstream}", state.trim_end_matches(']')),
        });
    } else {
        status.branch = Some(format!("on {line}"));
    }
}
