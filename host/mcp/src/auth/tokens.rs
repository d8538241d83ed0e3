//! Bearer tokens of a file.
//!
//! ```toml
//! [[token]]
//! name = "ci"
//! sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
//! profiles = ["research"]     # without it: all, and the endpoint without a profile
//! ```
//!
//! The file holds what a token hashes to and not the token, so that who reads it cannot use it. Who can write a line is
//! let in, so that the file is believed only where nobody can but its owner, and its owner is root or the server's user:
//!
//! | owner | mode | |
//! |---|---|---|
//! | the server's user | nothing for others, `0600`, `0400` | taken |
//! | root, and the server is another | others may read, `0444`, `0440`, `0644` | taken: secrets that systemd, Podman or Kubernetes mount look so |
//! | root | others may write | refused |
//! | anybody else | | refused |

use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio_util::sync::CancellationToken;
use toml::Spanned;
use toolbay_policy::{Finding, Policy, Severity};

use super::{Principal, ProfileAccess};
use crate::auth::regular::open_regular;

/// Largest file of tokens, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Most tokens of a file: each is compared with each that comes in.
const MAX_TOKENS: usize = 1000;
/// Longest name of a token, in bytes.
const MAX_NAME: usize = 64;
/// Permission of others to do anything at all with the file, and to write it.
const ANYTHING: u32 = 0o077;
const WRITING: u32 = 0o022;
/// Whose files are the system's.
const ROOT: u32 = 0;

/// The tokens that count.
#[derive(Debug)]
pub(super) struct Tokens(Vec<Token>);

#[derive(Debug)]
struct Token {
    /// In hex digits, as the file has it.
    sha256: String,
    caller: Principal,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lines {
    #[serde(default)]
    token: Vec<Line>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: Spanned<String>,
    sha256: Spanned<String>,
    profiles: Option<BTreeSet<Spanned<String>>>,
}

/// Finds what is wrong with a file of tokens: that it cannot be believed or read, and profiles that the policy does not
/// have. No text of the file is repeated but names of tokens and profiles.
#[must_use]
pub fn check_tokens(file: &Path, policy: &Policy) -> Vec<Finding> {
    let text = match read(file) {
        Ok(text) => text,
        Err(problem) => return vec![Finding::new(Severity::Error, "", 0..0, problem)],
    };
    let lines = match Tokens::lines(&text) {
        Ok(lines) => lines,
        Err(finding) => return vec![finding],
    };
    let unknown = |line: &Line| {
        let profiles = line.profiles.iter().flatten();
        let unknown = profiles.filter_map(|name| {
            let (_, message, help) = policy.unknown_profile(std::iter::once(name.get_ref().as_str()))?;
            let message = format!("the token `{}` opens nothing here: {message}", line.name.get_ref());
            Some(Finding { help, ..Finding::new(Severity::Warning, &text, name.span(), message) })
        });
        unknown.collect::<Vec<_>>()
    };
    lines.iter().flat_map(unknown).collect()
}

impl Tokens {
    /// Reads the file. Those of `before` that are in it as they were stay what they are.
    ///
    /// # Errors
    /// It cannot be read, others can write it, or it is not what it should be.
    pub(super) fn read(file: &Path, before: Option<&Self>) -> Result<Self, String> {
        let shown = file.display();
        let text = read(file).map_err(|e| format!("the tokens `{shown}`: {e}"))?;
        let new = Self::parse(&text).map_err(|e| format!("the tokens `{shown}`: {e}"))?;
        Ok(new.following(before))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let lines = Self::lines(text).map_err(|finding| finding.to_string())?;
        let tokens = lines.into_iter().map(|line| {
            let profiles =
                |all: BTreeSet<Spanned<String>>| all.into_iter().map(Spanned::into_inner).collect();
            let access =
                line.profiles.map_or(ProfileAccess::All, |all| ProfileAccess::Only(Arc::new(profiles(all))));
            let caller = Principal {
                name: format!("token:{}", line.name.get_ref()).into(),
                known: true,
                access,
                expires: None,
                credential: CancellationToken::new(),
            };
            Token { sha256: line.sha256.get_ref().to_ascii_lowercase(), caller }
        });
        Ok(Self(tokens.collect()))
    }

    /// The lines, checked.
    fn lines(text: &str) -> Result<Vec<Line>, Finding> {
        let wrong = |span, message: String| Finding::new(Severity::Error, text, span, message);
        // What TOML says of a line could quote it.
        let lines: Lines =
            toml::from_str(text).map_err(|e| wrong(e.span().unwrap_or_default(), e.message().to_owned()))?;
        if lines.token.len() > MAX_TOKENS {
            return Err(wrong(0..0, format!("it has more than {MAX_TOKENS} of them")));
        }
        let mut names = BTreeSet::new();
        for Line { name: spanned, sha256, .. } in &lines.token {
            let name = spanned.get_ref();
            let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'@');
            if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(legal) {
                let message = format!("`name` has 1 to {MAX_NAME} of letters, digits, `_`, `-`, `.`, `@`");
                return Err(wrong(spanned.span(), message));
            }
            if !names.insert(name) {
                return Err(wrong(spanned.span(), format!("`{name}` is there twice")));
            }
            let digits = sha256.get_ref();
            if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(wrong(sha256.span(), format!("`sha256` of `{name}` is not 64 hex digits")));
            }
        }
        Ok(lines.token)
    }

    /// What is as before stays as it is, so that nobody's streams are cut off for another's change.
    fn following(mut self, before: Option<&Self>) -> Self {
        for old in before.iter().flat_map(|before| &before.0) {
            if let Some(new) = self.0.iter_mut().find(|new| new.is(old)) {
                new.caller.credential = old.caller.credential.clone();
            }
        }
        self
    }

    /// Ends what stands on tokens that are not among these others.
    pub(super) fn end_all_but(&self, others: Option<&Self>) {
        let is_there = |token: &Token| others.is_some_and(|others| others.0.iter().any(|one| one.is(token)));
        self.0.iter().filter(|token| !is_there(token)).for_each(|token| token.caller.credential.cancel());
    }

    /// Whose token this is. Looks at all of them, and at all bytes of each.
    pub(super) fn find(&self, token: &str) -> Option<Principal> {
        let sha256 = format!("{:x}", Sha256::digest(token));
        let mut found = None;
        for one in &self.0 {
            if bool::from(one.sha256.as_bytes().ct_eq(sha256.as_bytes())) {
                found = Some(one);
            }
        }
        found.map(|token| token.caller.clone())
    }
}

impl Token {
    fn is(&self, other: &Self) -> bool {
        let access = match (&self.caller.access, &other.caller.access) {
            (ProfileAccess::All, ProfileAccess::All) => true,
            (ProfileAccess::Only(one), ProfileAccess::Only(other)) => one == other,
            _ => false,
        };
        access && self.sha256 == other.sha256 && self.caller.name == other.caller.name
    }
}

fn read(file: &Path) -> Result<String, String> {
    let mut file = open_regular(file).map_err(|e| e.to_string())?;
    let metadata = file.metadata().map_err(|e| e.to_string())?;
    check_owner(metadata.uid(), metadata.mode() & 0o777, rustix::process::geteuid().as_raw())?;
    if metadata.len() > MAX_FILE {
        return Err(format!("it has more than {MAX_FILE} bytes"));
    }
    let mut text = String::new();
    file.by_ref().take(MAX_FILE).read_to_string(&mut text).map_err(|e| e.to_string())?;
    Ok(text)
}

/// Whether a file of this owner and this mode is believed by the server of user `us`: the table above.
fn check_owner(owner: u32, mode: u32, us: u32) -> Result<(), String> {
    if owner != us && owner != ROOT {
        return Err(format!(
            "it belongs to another user ({owner}): chown it to root, or to the server's user"
        ));
    }
    if mode & WRITING != 0 {
        return Err(format!("others than its owner can write it (mode {mode:03o}): chmod 600 it"));
    }
    if owner != ROOT && mode & ANYTHING != 0 {
        return Err(format!(
            "others than its owner can read it (mode {mode:03o}): chmod 600 it, or make it root's, which others may read"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHA-256 of `test` and of `b`.
    const TEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    const B: &str = "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d";

    fn line(name: &str, sha256: &str, more: &str) -> String {
        format!("[[token]]\nname = '{name}'\nsha256 = '{sha256}'\n{more}\n")
    }

    #[test]
    fn a_token_is_found_by_what_it_hashes_to() {
        let tokens =
            Tokens::parse(&(line("ci", TEST, "profiles = ['research']") + &line("b", B, ""))).unwrap();
        let caller = tokens.find("test").unwrap();
        assert_eq!(&*caller.name, "token:ci");
        assert!(caller.may(Some("research")).is_ok());
        assert!(caller.may(Some("other")).is_err() && caller.may(None).is_err());
        assert!(tokens.find("b").unwrap().may(None).is_ok());
        for wrong in ["", "tes", "test ", "TEST", TEST, "c"] {
            assert!(tokens.find(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_file_that_is_wrong_is_refused_without_being_quoted() {
        for text in [
            line("", TEST, ""),
            line("a b", TEST, ""),
            line("a", "secret-as-it-is", ""),
            line("a", &format!("+{}", &TEST[1..]), ""),
            line("a", TEST, "") + &line("a", B, ""),
            line("a", TEST, "admin = true"),
            "secret-as-it-is".to_owned(),
        ] {
            let error = Tokens::parse(&text).unwrap_err();
            assert!(!error.contains("secret-as-it-is"), "{error}");
        }
        let many: String = (0..=MAX_TOKENS).map(|n| line(&n.to_string(), TEST, "")).collect();
        assert!(Tokens::parse(&many).is_err());
    }

    #[test]
    fn what_is_gone_or_another_is_revoked_and_the_rest_goes_on() {
        let before =
            Tokens::parse(&(line("a", TEST, "") + &line("b", B, "") + &line("c", &"0".repeat(64), "")));
        let before = before.unwrap();
        let after = Tokens::parse(&(line("b", B, "profiles = ['x']") + &line("a", TEST, ""))).unwrap();
        let after = after.following(Some(&before));
        let revoked = |tokens: &Tokens| -> Vec<bool> {
            tokens.0.iter().map(|token| token.caller.credential.is_cancelled()).collect()
        };
        assert_eq!(revoked(&before), [false; 3], "read, but not taken over yet");
        before.end_all_but(Some(&after));
        assert_eq!(revoked(&before), [false, true, true]);
        assert_eq!(revoked(&after), [false; 2]);
        after.end_all_but(None);
        assert_eq!(revoked(&after), [true; 2]);
    }

    #[test]
    fn a_file_is_believed_that_nobody_but_its_owner_and_root_can_have_written() {
        let (us, other) = (1000, 1001);
        for (owner, mode, us, good) in [
            (us, 0o600, us, true),
            (us, 0o400, us, true),
            (us, 0o640, us, false),
            (us, 0o604, us, false),
            (us, 0o602, us, false),
            // Secrets as they are mounted: by systemd, where its access list shows as the group's, by Podman, by Kubernetes.
            (ROOT, 0o440, us, true),
            (ROOT, 0o444, us, true),
            (ROOT, 0o644, us, true),
            (ROOT, 0o444, ROOT, true),
            (ROOT, 0o600, ROOT, true),
            (ROOT, 0o664, us, false),
            (ROOT, 0o646, us, false),
            (ROOT, 0o666, ROOT, false),
            (other, 0o600, us, false),
            (other, 0o444, us, false),
            (other, 0o600, ROOT, false),
        ] {
            let found = check_owner(owner, mode, us);
            assert_eq!(found.is_ok(), good, "{owner} {mode:o} {us}: {found:?}");
        }
    }

    #[test]
    fn the_file_itself_is_looked_at() {
        use std::os::unix::fs::PermissionsExt;
        let file = std::env::temp_dir().join(format!("toolbay-tokens-{}", std::process::id()));
        std::fs::write(&file, line("a", TEST, "")).unwrap();
        let read = |mode: u32| {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            Tokens::read(&file, None)
        };
        let results = [0o600, 0o400, 0o622, 0o602].map(|mode| read(mode).is_ok());
        std::fs::remove_file(&file).unwrap();
        assert_eq!(results, [true, true, false, false]);
        // Root's, which everybody may read: it is believed, though it is no file of tokens.
        let error = Tokens::read(Path::new("/etc/passwd"), None).unwrap_err();
        assert!(!error.contains("chmod") && !error.contains("chown"), "{error}");
    }
}
