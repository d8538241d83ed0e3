//! `git status` in every format.
//!
//! ```text
//! On branch main                                  git status: on main, ahead 1, behind 1 of origin/main; 1 staged,
//! Your branch and 'origin/main' have diverged,    1 unstaged, 1 conflict, 40 untracked.
//! and have 1 and 1 different commits each, …      staged: A added.txt
//! …                                         ->    unstaged: M file1.txt
//! Untracked files:                                conflict: UU conflict.txt
//!   (use "git add <file>..." …)                   untracked: a1, a10, a11, a12, … (+30 more)
//!     a1
//! ```
//!
//! A text is a status only if every line is understood. The result says `clean` only if git said so, or printed a branch
//! and nothing else. Letters are those of the short format (`git help status`, "Short Format").

mod long;
mod porcelain;

use crate::cut::{clip, count};

/// How many files of each kind are named. The others are counted.
const NAMED: usize = 10;

/// Longer paths and state descriptions are cut.
const PATH_CHARS: usize = 300;

/// The parsed status.
#[derive(Debug, Default)]
pub(super) struct StatusSummary<'a> {
    /// The branch, or git's text instead.
    branch: Option<String>,
    /// `ahead 1, behind 2 of origin/main`.
    upstream: Option<String>,
    /// Other lines of git, such as a rebase in progress.
    notes: Vec<&'a str>,
    staged: FileNames,
    unstaged: FileNames,
    conflicts: FileNames,
    untracked: FileNames,
    ignored: FileNames,
    /// Git said that nothing changed.
    clean: bool,
}

/// The files of one kind.
#[derive(Debug, Default)]
struct FileNames {
    number: usize,
    named: Vec<String>,
}

impl FileNames {
    fn add(&mut self, shown: impl FnOnce() -> String) {
        self.number += 1;
        if self.number <= NAMED {
            self.named.push(clip(&shown(), PATH_CHARS));
        }
    }
}

impl StatusSummary<'_> {
    /// Adds a path with its two letters of the short format.
    fn add(&mut self, x: char, y: char, path: &str) -> Option<()> {
        match (x, y) {
            ('?', '?') => self.untracked.add(|| path.to_owned()),
            ('!', '!') => self.ignored.add(|| path.to_owned()),
            ('U', 'U' | 'A' | 'D') | ('A', 'U' | 'A') | ('D', 'U' | 'D') => {
                self.conflicts.add(|| format!("{x}{y} {path}"));
            }
            (' ', ' ') => return None,
            _ => {
                match x {
                    ' ' => {}
                    'M' | 'T' | 'A' | 'D' | 'R' | 'C' => self.staged.add(|| format!("{x} {path}")),
                    _ => return None,
                }
                match y {
                    ' ' => {}
                    // Lower-case letters describe submodules.
                    'M' | 'T' | 'A' | 'D' | 'R' | 'C' | 'm' | '?' => {
                        self.unstaged.add(|| format!("{y} {path}"));
                    }
                    _ => return None,
                }
            }
        }
        Some(())
    }

    fn kinds(&self) -> [(&'static str, &FileNames); 5] {
        [
            ("staged", &self.staged),
            ("unstaged", &self.unstaged),
            ("conflict", &self.conflicts),
            ("untracked", &self.untracked),
            ("ignored", &self.ignored),
        ]
    }

    fn show(&self) -> Option<String> {
        let mut counts: Vec<String> = Vec::new();
        for (kind, files) in self.kinds().into_iter().filter(|(_, files)| files.number > 0) {
            counts.push(match kind {
                "conflict" => count(files.number, kind),
                _ => format!("{} {kind}", files.number),
            });
        }
        if counts.is_empty() {
            // A status without changes that does not say so was not understood.
            counts.push(self.clean.then(|| "clean".to_owned())?);
        }
        let place: Vec<String> = self.branch.iter().chain(&self.upstream).cloned().collect();
        let seam = if place.is_empty() { "" } else { "; " };
        let mut text = format!("git status: {}{seam}{}.", place.join(", "), counts.join(", "));
        for note in &self.notes {
            text.push_str(&format!("\n{}", clip(note, PATH_CHARS)));
        }
        for (kind, files) in self.kinds().into_iter().filter(|(_, files)| files.number > 0) {
            text.push_str(&format!("\n{kind}: {}", files.named.join(", ")));
            if files.number > files.named.len() {
                text.push_str(&format!(", … (+{} more)", files.number - files.named.len()));
            }
        }
        Some(text)
    }
}

/// Shortens a status. `text` does not contain the pointer to saved output.
pub(super) fn status(text: &str) -> Option<String> {
    let status = if text.contains('\0') {
        porcelain::nul_separated(text)
    } else {
        long::parse(text).or_else(|| porcelain::lines(text))
    };
    status?.show()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(status(text).as_deref(), expected, "{text}");
    }

    #[test]
    fn the_short_format() {
        check(
            " M a\nM  b\nMM c\n?? d\nUU e\n D f\nR  g -> h\n!! i\n",
            Some(
                "git status: 3 staged, 3 unstaged, 1 conflict, 1 untracked, 1 ignored.\nstaged: M b, M c, R g -> h\n\
                 unstaged: M a, M c, D f\nconflict: UU e\nuntracked: d\nignored: i",
            ),
        );
        check("## main\n", Some("git status: on main; clean."));
        check(
            "## main...origin/main [ahead 1, behind 2]\n?? a\n",
            Some("git status: on main, ahead 1, behind 2 of origin/main; 1 untracked.\nuntracked: a"),
        );
        check("## main...origin/main [gone]\n", Some("git status: on main, origin/main is gone; clean."));
        check("## HEAD (no branch)\n?? a\n", Some("git status: no branch; 1 untracked.\nuntracked: a"));
        check("## No commits yet on main\n", Some("git status: on main, no commits yet; clean."));
        check(
            "AA a\nDD b\nAU c\nUD d\nUA e\nDU f\n",
            Some("git status: 6 conflicts.\nconflict: AA a, DD b, AU c, UD d, UA e, DU f"),
        );
        check(" m sub\n", Some("git status: 1 unstaged.\nunstaged: m sub"));
    }

    #[test]
    fn names_of_files_are_not_letters() {
        check("?? R  x -> y\n", Some("git status: 1 untracked.\nuntracked: R  x -> y"));
        check("A  \"a\\nb\"\n", Some("git status: 1 staged.\nstaged: A \"a\\nb\""));
    }

    #[test]
    fn what_is_not_a_status_is_nothing() {
        for text in [
            "",
            "\n",
            "secret plan: ship on Friday\n",
            "fatal: not a git repository (or any of the parent directories): .git\n",
            "?? a\nand more\n",
            "XY a\n",
            "   a\n",
            "?? \n",
            "M\n",
            "éé a\n",
            "1 .M N... 100644\n",
            "# branch.oid abc\nhello\n",
            "On branch main\n",
            "On branch main\n\nChanges to be committed:\n\tsomething else\n",
            "On branch main\nChanges to be committed:\n\tmodified:   a\n\ndiff --git a/a b/a\n",
            "HEAD detached\0x",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn porcelain_v2() {
        let hash = "0".repeat(40);
        let entry =
            |kind: &str, rest: &str| format!("{kind} N... 100644 100644 100644 {hash} {hash} {rest}\n");
        let text = [
            "# branch.oid 0000\n# branch.head main\n# branch.upstream o/main\n# branch.ab +1 -0\n# stash 2\n"
                .to_owned(),
            entry("1 .M", "a b"),
            entry("2 R.", "R100 new\told"),
            format!("1 .M S.MU 160000 160000 160000 {hash} {hash} sub\n"),
            format!("u UU N... 1 2 3 4 {hash} {hash} {hash} c\n"),
            "? d\n! e\n".to_owned(),
        ]
        .concat();
        check(
            &text,
            Some(
                "git status: on main, ahead 1 of o/main; 1 staged, 2 unstaged, 1 conflict, 1 untracked, 1 ignored.\n\
                 # stash 2\nstaged: R old -> new\nunstaged: M a b, M sub (modified content, untracked content)\n\
                 conflict: UU c\nuntracked: d\nignored: e",
            ),
        );
        let nul = text.replace(['\t', '\n'], "\0");
        assert_eq!(status(&nul), status(&text));
        check("# branch.oid (initial)\n# branch.head (detached)\n", Some("git status: no branch; clean."));
    }

    #[test]
    fn nul_separated_short_format() {
        check(
            "## main\0 M a\0R  new\0old\0?? x\ny\0",
            Some(
                "git status: on main; 1 staged, 1 unstaged, 1 untracked.\nstaged: R old -> new\nunstaged: M a\nuntracked: x\ny",
            ),
        );
        check("R  new\0", None);
    }

    #[test]
    fn many_files_are_counted() {
        let text: String = (0..500).map(|n| format!("?? f{n}\n")).collect();
        let shown = status(&text).unwrap();
        assert!(shown.starts_with("git status: 500 untracked.\nuntracked: f0, f1,"), "{shown}");
        assert!(shown.ends_with("f9, … (+490 more)"), "{shown}");
    }
}
