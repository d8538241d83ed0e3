//! The long format of `git status`.

use super::StatusSummary;

/// The headings of the lists.
const LISTS: [(&str, StatusList); 5] = [
    ("Changes to be committed:", StatusList::Staged),
    ("Changes not staged for commit:", StatusList::Unstaged),
    ("Unmerged paths:", StatusList::Conflicts),
    ("Untracked files:", StatusList::Untracked),
    ("Ignored files:", StatusList::Ignored),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum StatusList {
    Staged,
    Unstaged,
    Conflicts,
    Untracked,
    Ignored,
}

/// The labels of entries, and their letters in the short format.
const LABELS: [(&str, char); 8] = [
    ("new file:", 'A'),
    ("modified:", 'M'),
    ("deleted:", 'D'),
    ("renamed:", 'R'),
    ("copied:", 'C'),
    ("typechange:", 'T'),
    ("new commits:", 'm'),
    ("unknown:", 'X'),
];

const CONFLICTS: [(&str, [char; 2]); 7] = [
    ("both modified:", ['U', 'U']),
    ("both added:", ['A', 'A']),
    ("both deleted:", ['D', 'D']),
    ("added by us:", ['A', 'U']),
    ("added by them:", ['U', 'A']),
    ("deleted by us:", ['D', 'U']),
    ("deleted by them:", ['U', 'D']),
];

/// The starts of the first line. The rest names the branch, or the reason why there is none.
const FIRST: [&str; 6] = [
    "On branch ",
    "HEAD detached ",
    "Not currently on any branch.",
    "interactive rebase in progress",
    "rebase in progress",
    "You are ",
];

/// Lines that say that nothing changed. Advice may follow on the line.
const CLEAN: [&str; 2] =
    ["nothing to commit, working tree clean", "nothing to commit, working directory clean"];

/// Lines that repeat the lists.
const REPEATED: [&str; 6] = [
    "nothing added to commit but untracked files present",
    "no changes added to commit",
    "nothing to commit (",
    "Your branch and '",
    "and have ",
    "Untracked files not listed",
];

/// Parses a status; `None` if one of its lines does not belong to a status.
pub(super) fn parse(text: &str) -> Option<StatusSummary<'_>> {
    let mut status = StatusSummary::default();
    let mut list = None;
    let mut lines = text.lines().skip_while(|line| line.is_empty());
    let first = lines.next()?;
    FIRST.iter().find(|start| first.starts_with(**start))?;
    status.branch = Some(match first.strip_prefix("On branch ") {
        Some(branch) => format!("on {branch}"),
        None => first.trim_end_matches('.').to_owned(),
    });
    let mut diverged = None;
    for line in lines {
        if line.is_empty() || line.starts_with("  (") {
            continue;
        }
        if let Some(entry) = line.strip_prefix('\t') {
            add(list?, entry, &mut status)?;
        } else if let Some((_, found)) = LISTS.iter().find(|(heading, _)| *heading == line) {
            list = Some(*found);
        } else if CLEAN.iter().any(|clean| line.starts_with(clean)) {
            status.clean = true;
        } else if let Some(upstream) = upstream(line, &mut diverged) {
            status.upstream = Some(upstream);
        } else if !REPEATED.iter().any(|start| line.starts_with(start)) {
            if line.starts_with(['\u{20}', '-', '+', '@']) && !line.starts_with("   ")
                || line.starts_with("diff ")
            {
                // The patch of `git status -v`, or text of another program.
                return None;
            }
            status.notes.push(line);
        }
    }
    Some(status)
}

fn add(list: StatusList, entry: &str, status: &mut StatusSummary<'_>) -> Option<()> {
    let rest = |label: &str| entry.strip_prefix(label).map(str::trim_start).filter(|path| !path.is_empty());
    match list {
        StatusList::Untracked => status.add('?', '?', entry),
        StatusList::Ignored => status.add('!', '!', entry),
        StatusList::Staged | StatusList::Unstaged => {
            let (path, letter) = LABELS.iter().find_map(|(label, letter)| Some((rest(label)?, *letter)))?;
            if list == StatusList::Staged {
                status.add(letter, ' ', path)
            } else {
                status.add(' ', letter, path)
            }
        }
        StatusList::Conflicts => {
            let (path, [x, y]) =
                CONFLICTS.iter().find_map(|(label, letters)| Some((rest(label)?, *letters)))?;
            status.add(x, y, path)
        }
    }
}

/// Parses `Your branch is ahead of 'origin/main' by 2 commits.` and similar lines.
fn upstream(line: &str, diverged: &mut Option<String>) -> Option<String> {
    if let Some(name) =
        line.strip_prefix("Your branch and '").and_then(|rest| rest.strip_suffix("' have diverged,"))
    {
        *diverged = Some(name.to_owned());
        return None;
    }
    if let Some(numbers) = line.strip_prefix("and have ") {
        let (ahead, rest) = numbers.split_once(" and ")?;
        let (behind, _) = rest.split_once(' ')?;
        return Some(format!("ahead {ahead}, behind {behind} of {}", diverged.take()?));
    }
    let rest = line.strip_prefix("Your branch is ")?;
    let (what, rest) = rest.split_once('\'')?;
    let (name, rest) = rest.split_once('\'')?;
    Some(match what {
        "up to date with " => format!("even with {name}"),
        "ahead of " | "behind " => {
            let number: String =
                rest.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
            format!("{} {number} of {name}", what.split(' ').next().unwrap_or(what))
        }
        "based on " => format!("{name} is gone"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::status;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(status(text).as_deref(), Some(expected), "{text}");
    }

    #[test]
    fn branches_and_upstreams() {
        let clean = "nothing to commit, working tree clean\n";
        for (text, expected) in [
            ("On branch main\n", "on main"),
            ("On branch a\nYour branch is up to date with 'o/a'.\n\n", "on a, even with o/a"),
            (
                "On branch a\nYour branch is ahead of 'o/a' by 2 commits.\n  (use \"git push\")\n\n",
                "on a, ahead 2 of o/a",
            ),
            (
                "On branch a\nYour branch is behind 'o/a' by 1 commit, and can be fast-forwarded.\n",
                "on a, behind 1 of o/a",
            ),
            (
                "On branch a\nYour branch and 'o/a' have diverged,\nand have 1 and 2 different commits each, respectively.\n",
                "on a, ahead 1, behind 2 of o/a",
            ),
            ("On branch a\nYour branch is based on 'o/a', but the upstream is gone.\n", "on a, o/a is gone"),
            ("HEAD detached at 1234567\n", "HEAD detached at 1234567"),
        ] {
            check(&format!("{text}{clean}"), &format!("git status: {expected}; clean."));
        }
        check(
            "On branch main\n\nNo commits yet\n\nnothing to commit, working tree clean\n",
            "git status: on main; clean.\nNo commits yet",
        );
    }

    #[test]
    fn the_seeds_bug_long_format_is_not_clean() {
        check(
            "On branch main\nChanges not staged for commit:\n\tmodified:   a.ts\n",
            "git status: on main; 1 unstaged.\nunstaged: M a.ts",
        );
    }

    #[test]
    fn what_git_says_besides_stays() {
        check(
            "interactive rebase in progress; onto 1234567\nLast command done (1 command done):\n   pick 1 x\n\
             You are currently editing a commit while rebasing branch 'a' on '1'.\n\nUnmerged paths:\n\tboth added:      x\n",
            "git status: interactive rebase in progress; onto 1234567; 1 conflict.\n\
             Last command done (1 command done):\n   pick 1 x\n\
             You are currently editing a commit while rebasing branch 'a' on '1'.\nconflict: AA x",
        );
    }
}
