//! Bearer tokens from a file.
//!
//! ```toml
//! [[token]]
//! name = "ci"
//! sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
//! profiles = ["research"]     # default: all profiles, and the endpoint without one
//! ```
//!
//! The file contains hashes of tokens, so that reading it does not reveal a token. Everyone who can write the file can
//! let themselves in. The server therefore trusts it only if no other user can write it, and the owner is root
//! or the server's user:
//!
//! | owner | mode | result |
//! |---|---|---|
//! | the server's user | no access for others: `0600`, `0400` | accepted |
//! | root, with the server as another user | others may read: `0444`, `0440`, `0644` | accepted: systemd, Podman and Kubernetes mount secrets like this |
//! | root | others may write | refused |
//! | any other user | any | refused |

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use subtle::ConstantTimeEq;
use tokio_util::sync::CancellationToken;
use toml::Spanned;
use toolbay_policy::{Policy, PolicyFinding, Severity};
use toolbay_state::digest::Digest;
use toolbay_state::regular::open_regular;

use super::{Principal, ProfileAccess};

/// Largest token file, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Shortest and longest key of `requestState`, in bytes.
const MIN_KEY: u64 = 32;
const MAX_KEY: u64 = 1024;
/// Most tokens in a file. Each token of a request is compared with all of them.
const MAX_TOKENS: usize = 1000;
/// Longest name of a token, in bytes.
const MAX_NAME: usize = 64;
/// Mode bits that give others any access to the file.
const OTHERS_ANY: u32 = 0o077;
const OTHERS_WRITE: u32 = 0o022;
/// User id of root.
const ROOT_UID: u32 = 0;

/// The tokens of one file.
#[derive(Debug)]
pub(super) struct BearerTokens(Vec<BearerToken>);

#[derive(Debug)]
struct BearerToken {
    /// Lower-case hex digits.
    sha256: String,
    principal: Principal,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFileContent {
    #[serde(default)]
    token: Vec<TokenEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenEntry {
    name: Spanned<String>,
    sha256: Spanned<String>,
    profiles: Option<BTreeSet<Spanned<String>>>,
}

/// The names of the tokens in a file, as the audit has them: `token:ci`.
///
/// # Errors
/// The file cannot be read, has an owner or mode that is not trusted, or is invalid.
pub fn token_names(file: &Path) -> Result<Vec<String>, String> {
    Ok(BearerTokens::read(file, None)?.entries().into_keys().collect())
}

/// Checks a token file: its owner and mode, its format, and whether the policy has the profiles that it names. Findings
/// quote nothing from the file except names of tokens and profiles.
#[must_use]
pub fn check_tokens(file: &Path, policy: &Policy) -> Vec<PolicyFinding> {
    let text = match read_trusted(file) {
        Ok(text) => text,
        Err(problem) => return vec![PolicyFinding::new(Severity::Error, "", 0..0, problem)],
    };
    let lines = match BearerTokens::parse_entries(&text) {
        Ok(lines) => lines,
        Err(findings) => return findings,
    };
    let unknown = |line: &TokenEntry| {
        let profiles = line.profiles.iter().flatten();
        let unknown = profiles.filter_map(|name| {
            let (_, message, help) = policy.unknown_profile(std::iter::once(name.get_ref().as_str()))?;
            let message = format!("the token `{}` names an unknown profile: {message}", line.name.get_ref());
            Some(PolicyFinding { help, ..PolicyFinding::new(Severity::Warning, &text, name.span(), message) })
        });
        unknown.collect::<Vec<_>>()
    };
    let without_effect = warnings(&text, &lines, policy.serve().oauth.is_some());
    lines.iter().flat_map(unknown).chain(without_effect).collect()
}

/// Finds tokens that match no client, and a file without tokens, unless clients have other credentials.
fn warnings(text: &str, lines: &[TokenEntry], has_others: bool) -> Vec<PolicyFinding> {
    let warning = |span, message: String| PolicyFinding::new(Severity::Warning, text, span, message);
    if lines.is_empty() && !has_others {
        return vec![warning(0..0, "the file has no token, so every request is refused".to_owned())];
    }
    let (mut names, mut found) = (BTreeMap::new(), Vec::new());
    for TokenEntry { name, sha256, .. } in lines {
        if let Some(other) = names.insert(sha256.get_ref().to_ascii_lowercase(), name.get_ref()) {
            let name = name.get_ref();
            let message =
                format!("`{other}` and `{name}` are the same token, and a client that has it is `{name}`");
            found.push(warning(sha256.span(), message));
        }
    }
    found
}

impl BearerTokens {
    /// Reads the file. Tokens that are unchanged from `before` stay valid.
    ///
    /// # Errors
    /// The file cannot be read, has an owner or mode that is not trusted, or is invalid.
    pub(super) fn read(file: &Path, before: Option<&Self>) -> Result<Self, String> {
        let shown = file.display();
        let text = read_trusted(file).map_err(|e| format!("the tokens `{shown}`: {e}"))?;
        let new = Self::parse(&text).map_err(|e| format!("the tokens `{shown}`: {e}"))?;
        Ok(new.keep_unchanged(before))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let first =
            |findings: Vec<PolicyFinding>| findings.first().map(ToString::to_string).unwrap_or_default();
        let lines = Self::parse_entries(text).map_err(first)?;
        let tokens = lines.into_iter().map(|line| {
            let profiles =
                |all: BTreeSet<Spanned<String>>| all.into_iter().map(Spanned::into_inner).collect();
            let access =
                line.profiles.map_or(ProfileAccess::All, |all| ProfileAccess::Only(Arc::new(profiles(all))));
            let principal = Principal {
                name: format!("token:{}", line.name.get_ref()).into(),
                authenticated: true,
                access,
                expires: None,
                credential: CancellationToken::new(),
            };
            BearerToken { sha256: line.sha256.get_ref().to_ascii_lowercase(), principal }
        });
        Ok(Self(tokens.collect()))
    }

    /// Parses and checks the entries, or returns all mistakes.
    fn parse_entries(text: &str) -> Result<Vec<TokenEntry>, Vec<PolicyFinding>> {
        let wrong = |span, message: String| PolicyFinding::new(Severity::Error, text, span, message);
        // The full TOML error quotes the line, which may contain a secret.
        let lines: TokenFileContent = toml::from_str(text)
            .map_err(|e| vec![wrong(e.span().unwrap_or_default(), e.message().to_owned())])?;
        if lines.token.len() > MAX_TOKENS {
            return Err(vec![wrong(0..0, format!("more than {MAX_TOKENS} tokens"))]);
        }
        let (mut names, mut found) = (BTreeSet::new(), Vec::new());
        for TokenEntry { name: spanned, sha256, .. } in &lines.token {
            let name = spanned.get_ref();
            let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'@');
            if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(legal) {
                let message =
                    format!("`name` must have 1 to {MAX_NAME} letters, digits, `_`, `-`, `.` or `@`");
                found.push(wrong(spanned.span(), message));
                continue;
            }
            if !names.insert(name) {
                found.push(wrong(spanned.span(), format!("the name `{name}` occurs twice")));
            }
            let digits = sha256.get_ref();
            if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                found.push(wrong(sha256.span(), format!("`sha256` of `{name}` is not 64 hex digits")));
            }
        }
        if found.is_empty() { Ok(lines.token) } else { Err(found) }
    }

    /// Keeps the cancellation tokens of unchanged entries, so that a change to one entry does not end the streams of
    /// others.
    fn keep_unchanged(mut self, before: Option<&Self>) -> Self {
        for old in before.iter().flat_map(|before| &before.0) {
            if let Some(new) = self.0.iter_mut().find(|new| new.is_same_token(old)) {
                new.principal.credential = old.principal.credential.clone();
            }
        }
        self
    }

    /// Revokes the tokens that are not in `others`.
    pub(super) fn revoke_missing(&self, others: Option<&Self>) {
        let is_there = |token: &BearerToken| {
            others.is_some_and(|others| others.0.iter().any(|one| one.is_same_token(token)))
        };
        self.0.iter().filter(|token| !is_there(token)).for_each(|token| token.principal.credential.cancel());
    }

    /// The tokens by name, each with what makes it another token: its hash and its profiles.
    pub(super) fn entries(&self) -> BTreeMap<String, String> {
        let entry = |token: &BearerToken| {
            let text = format!("{} {:?}", token.sha256, token.principal.access);
            (token.principal.name.to_string(), text)
        };
        self.0.iter().map(entry).collect()
    }

    /// Finds the principal of a token, in constant time: it compares all bytes of all entries.
    pub(super) fn find(&self, token: &str) -> Option<Principal> {
        let sha256 = Digest::of(token.as_bytes()).hex();
        let mut found = None;
        for one in &self.0 {
            if bool::from(one.sha256.as_bytes().ct_eq(sha256.as_bytes())) {
                found = Some(one);
            }
        }
        found.map(|token| token.principal.clone())
    }
}

impl BearerToken {
    fn is_same_token(&self, other: &Self) -> bool {
        let access = match (&self.principal.access, &other.principal.access) {
            (ProfileAccess::All, ProfileAccess::All) => true,
            (ProfileAccess::Only(one), ProfileAccess::Only(other)) => one == other,
            _ => false,
        };
        access && self.sha256 == other.sha256 && self.principal.name == other.principal.name
    }
}

/// Reads a file of tokens that only root or this user can write, of at most 1 MiB.
///
/// # Errors
/// The file cannot be read, or another user could have written it, or can read it.
pub fn read_trusted(file: &Path) -> Result<String, String> {
    String::from_utf8(read_trusted_bytes(file, MAX_FILE)?).map_err(|error| error.to_string())
}

/// Reads the key of `requestState`: 32 to 1024 random bytes in a file that only root or this user can write.
///
/// # Errors
/// As [`read_trusted`], or the key has another size.
pub fn read_request_state_key(file: &Path) -> Result<Vec<u8>, String> {
    let key = read_trusted_bytes(file, MAX_KEY)?;
    match key.len() as u64 {
        MIN_KEY..=MAX_KEY => Ok(key),
        bytes => Err(format!(
            "the key has {bytes} bytes: make one with `head -c 32 /dev/urandom`, {MIN_KEY} to {MAX_KEY} bytes"
        )),
    }
}

fn read_trusted_bytes(file: &Path, most: u64) -> Result<Vec<u8>, String> {
    let mut file = open_regular(file).map_err(|e| e.to_string())?;
    let metadata = file.metadata().map_err(|e| e.to_string())?;
    check_owner(metadata.uid(), metadata.mode() & 0o777, rustix::process::geteuid().as_raw())?;
    if metadata.len() > most {
        return Err(format!("the file has more than {most} bytes"));
    }
    let mut bytes = Vec::new();
    file.by_ref().take(most).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    Ok(bytes)
}

/// Checks that a server of user `us` trusts a file with this owner and mode, by the table above.
fn check_owner(owner: u32, mode: u32, us: u32) -> Result<(), String> {
    if owner != us && owner != ROOT_UID {
        return Err(format!(
            "the file belongs to another user ({owner}): chown it to root or to the server's user"
        ));
    }
    if mode & OTHERS_WRITE != 0 {
        return Err(format!("users other than the owner can write the file (mode {mode:03o}): chmod 600 it"));
    }
    if owner != ROOT_UID && mode & OTHERS_ANY != 0 {
        return Err(format!(
            "users other than the owner can read the file (mode {mode:03o}): chmod 600 it, or chown it to root"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHA-256 of `test`.
    const TEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    /// SHA-256 of `b`.
    const B: &str = "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d";

    fn line(name: &str, sha256: &str, more: &str) -> String {
        format!("[[token]]\nname = '{name}'\nsha256 = '{sha256}'\n{more}\n")
    }

    #[test]
    fn a_token_is_found_by_its_hash() {
        let tokens =
            BearerTokens::parse(&(line("ci", TEST, "profiles = ['research']") + &line("b", B, ""))).unwrap();
        let caller = tokens.find("test").unwrap();
        assert_eq!(&*caller.name, "token:ci");
        assert!(caller.check_profile(Some("research")).is_ok());
        assert!(caller.check_profile(Some("other")).is_err() && caller.check_profile(None).is_err());
        assert!(tokens.find("b").unwrap().check_profile(None).is_ok());
        for wrong in ["", "tes", "test ", "TEST", TEST, "c"] {
            assert!(tokens.find(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_token_that_recognizes_nobody_is_found() {
        let same = line("a", TEST, "") + &line("b", B, "") + &line("c", &TEST.to_ascii_uppercase(), "");
        for (text, has_others, lines) in [
            ("", false, &[1][..]),
            ("", true, &[]),
            (&line("a", TEST, ""), false, &[]),
            (&same, false, &[11]),
        ] {
            let entries = BearerTokens::parse_entries(text).unwrap();
            let found = warnings(text, &entries, has_others);
            assert_eq!(found.iter().map(|one| one.line).collect::<Vec<_>>(), lines, "{text}");
        }
    }

    #[test]
    fn an_invalid_file_is_refused_without_quoting_it() {
        for text in [
            line("", TEST, ""),
            line("a b", TEST, ""),
            line("a", "secret-as-it-is", ""),
            line("a", &format!("+{}", &TEST[1..]), ""),
            line("a", TEST, "") + &line("a", B, ""),
            line("a", TEST, "admin = true"),
            "secret-as-it-is".to_owned(),
        ] {
            let error = BearerTokens::parse(&text).unwrap_err();
            assert!(!error.contains("secret-as-it-is"), "{error}");
        }
        let many: String = (0..=MAX_TOKENS).map(|n| line(&n.to_string(), TEST, "")).collect();
        assert!(BearerTokens::parse(&many).is_err());
    }

    #[test]
    fn removed_and_changed_tokens_are_revoked_and_others_stay() {
        let before =
            BearerTokens::parse(&(line("a", TEST, "") + &line("b", B, "") + &line("c", &"0".repeat(64), "")));
        let before = before.unwrap();
        let after = BearerTokens::parse(&(line("b", B, "profiles = ['x']") + &line("a", TEST, ""))).unwrap();
        let after = after.keep_unchanged(Some(&before));
        let revoked = |tokens: &BearerTokens| -> Vec<bool> {
            tokens.0.iter().map(|token| token.principal.credential.is_cancelled()).collect()
        };
        assert_eq!(revoked(&before), [false; 3], "loaded, but not in force yet");
        before.revoke_missing(Some(&after));
        assert_eq!(revoked(&before), [false, true, true]);
        assert_eq!(revoked(&after), [false; 2]);
        after.revoke_missing(None);
        assert_eq!(revoked(&after), [true; 2]);
    }

    #[test]
    fn only_a_file_that_its_owner_or_root_wrote_is_trusted() {
        let (us, other) = (1000, 1001);
        for (owner, mode, us, good) in [
            (us, 0o600, us, true),
            (us, 0o400, us, true),
            (us, 0o640, us, false),
            (us, 0o604, us, false),
            (us, 0o602, us, false),
            // Mounted secrets: by systemd, whose ACL shows up as group permissions, by Podman, by Kubernetes.
            (ROOT_UID, 0o440, us, true),
            (ROOT_UID, 0o444, us, true),
            (ROOT_UID, 0o644, us, true),
            (ROOT_UID, 0o444, ROOT_UID, true),
            (ROOT_UID, 0o600, ROOT_UID, true),
            (ROOT_UID, 0o664, us, false),
            (ROOT_UID, 0o646, us, false),
            (ROOT_UID, 0o666, ROOT_UID, false),
            (other, 0o600, us, false),
            (other, 0o444, us, false),
            (other, 0o600, ROOT_UID, false),
        ] {
            let found = check_owner(owner, mode, us);
            assert_eq!(found.is_ok(), good, "{owner} {mode:o} {us}: {found:?}");
        }
    }

    #[test]
    fn the_owner_and_mode_of_the_file_are_checked() {
        use std::os::unix::fs::PermissionsExt;
        let file = std::env::temp_dir().join(format!("toolbay-tokens-{}", std::process::id()));
        std::fs::write(&file, line("a", TEST, "")).unwrap();
        let read = |mode: u32| {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            BearerTokens::read(&file, None)
        };
        let results = [0o600, 0o400, 0o622, 0o602].map(|mode| read(mode).is_ok());
        std::fs::remove_file(&file).unwrap();
        assert_eq!(results, [true, true, false, false]);
        // Owned by root and world-readable: the owner and mode are accepted, though it is not a token file.
        let error = BearerTokens::read(Path::new("/etc/passwd"), None).unwrap_err();
        assert!(!error.contains("chmod") && !error.contains("chown"), "{error}");
    }
}
