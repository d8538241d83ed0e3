//! Bearer tokens of a file.
//!
//! ```toml
//! [[token]]
//! name = "ci"
//! sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
//! profiles = ["research"]     # without it: all, and the endpoint without a profile
//! ```
//!
//! The file holds what a token hashes to and not the token, so that who reads it can not use it. It must be the
//! operator's alone all the same: who can write a line is let in.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio_util::sync::CancellationToken;

use super::{Caller, Reach};

/// Largest file of tokens, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Most tokens of a file: each is compared with each that comes in.
const MAX_TOKENS: usize = 1000;
/// Longest name of a token, in bytes.
const MAX_NAME: usize = 64;
/// Permissions of the file that nobody but its owner may have.
const FOR_OTHERS: u32 = 0o077;

/// The tokens that count.
#[derive(Debug)]
pub(super) struct Tokens(Vec<Token>);

#[derive(Debug)]
struct Token {
    sha256: [u8; 32],
    caller: Caller,
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
    name: String,
    sha256: String,
    profiles: Option<BTreeSet<String>>,
}

impl Tokens {
    /// Reads the file. Those of `before` that are not in it any more, or not as they were, are revoked.
    ///
    /// # Errors
    /// It can not be read, others can read or write it, or it is not what it should be; nothing is revoked then.
    pub(super) fn read(file: &Path, before: Option<&Self>) -> Result<Self, String> {
        let shown = file.display();
        let text = read(file).map_err(|e| format!("the tokens `{shown}`: {e}"))?;
        let new = Self::parse(&text).map_err(|e| format!("the tokens `{shown}`: {e}"))?;
        Ok(new.following(before))
    }

    fn parse(text: &str) -> Result<Self, String> {
        // What TOML says of a line could quote it.
        let lines: Lines = toml::from_str(text).map_err(|e| e.message().to_owned())?;
        if lines.token.len() > MAX_TOKENS {
            return Err(format!("it has more than {MAX_TOKENS} of them"));
        }
        let mut names = BTreeSet::new();
        let mut tokens = Vec::with_capacity(lines.token.len());
        for line in lines.token {
            let name = &line.name;
            let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'@');
            if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(legal) {
                return Err(format!("`name` has 1 to {MAX_NAME} of letters, digits, `_`, `-`, `.`, `@`"));
            }
            if !names.insert(name.clone()) {
                return Err(format!("`{name}` is there twice"));
            }
            let sha256 =
                hex(&line.sha256).ok_or_else(|| format!("`sha256` of `{name}` is not 64 hex digits"))?;
            let reach = line.profiles.map_or(Reach::All, |profiles| Reach::Only(Arc::new(profiles)));
            let caller = Caller {
                name: format!("token:{name}").into(),
                known: true,
                reach,
                expires: None,
                revoked: CancellationToken::new(),
            };
            tokens.push(Token { sha256, caller });
        }
        Ok(Self(tokens))
    }

    /// What is as before stays as it is, so that nobody's streams are cut off for another's change.
    fn following(mut self, before: Option<&Self>) -> Self {
        for old in before.iter().flat_map(|before| &before.0) {
            match self.0.iter_mut().find(|new| new.is(old)) {
                Some(new) => new.caller.revoked = old.caller.revoked.clone(),
                None => old.caller.revoked.cancel(),
            }
        }
        self
    }

    pub(super) fn revoke_all(&self) {
        self.0.iter().for_each(|token| token.caller.revoked.cancel());
    }

    /// Whose token this is. Looks at all of them, and at all bytes of each.
    pub(super) fn find(&self, token: &str) -> Option<Caller> {
        let sha256: [u8; 32] = Sha256::digest(token).into();
        let mut found = None;
        for one in &self.0 {
            if bool::from(one.sha256.ct_eq(&sha256)) {
                found = Some(one);
            }
        }
        found.map(|token| token.caller.clone())
    }
}

impl Token {
    fn is(&self, other: &Self) -> bool {
        let reach = match (&self.caller.reach, &other.caller.reach) {
            (Reach::All, Reach::All) => true,
            (Reach::Only(one), Reach::Only(other)) => one == other,
            _ => false,
        };
        reach && self.sha256 == other.sha256 && self.caller.name == other.caller.name
    }
}

fn read(file: &Path) -> Result<String, String> {
    let mut file = File::open(file).map_err(|e| e.to_string())?;
    let metadata = file.metadata().map_err(|e| e.to_string())?;
    if !metadata.is_file() {
        return Err("is not a file".to_owned());
    }
    if metadata.mode() & FOR_OTHERS != 0 {
        let mode = metadata.mode() & 0o777;
        return Err(format!("others than its owner can read or write it (mode {mode:03o}): chmod 600 it"));
    }
    if metadata.len() > MAX_FILE {
        return Err(format!("it has more than {MAX_FILE} bytes"));
    }
    let mut text = String::new();
    file.by_ref().take(MAX_FILE).read_to_string(&mut text).map_err(|e| e.to_string())?;
    Ok(text)
}

fn hex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    let mut bytes = [0; 32];
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| !pair.starts_with('+'))?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(bytes)
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
        let revoked: Vec<bool> = before.0.iter().map(|token| token.caller.revoked.is_cancelled()).collect();
        assert_eq!(revoked, [false, true, true]);
        assert!(!after.find("b").unwrap().revoked.is_cancelled());
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let file = std::env::temp_dir().join(format!("toolbay-tokens-{}", std::process::id()));
        std::fs::write(&file, line("a", TEST, "")).unwrap();
        let mut results = Vec::new();
        for mode in [0o600, 0o400, 0o640, 0o644, 0o602] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            results.push(Tokens::read(&file, None).is_ok());
        }
        std::fs::remove_file(&file).unwrap();
        assert_eq!(results, [true, true, false, false, false]);
    }
}
