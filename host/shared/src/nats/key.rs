//! Names of records. Ours may have any character; those of NATS only `-/_=.a-zA-Z0-9`, and a dot separates tokens.
//!
//! Letters, digits and `-` stay as they are. Any other byte becomes `=` and two hexadecimal digits. So a name is readable
//! with the tools of NATS, and two names never collide.

use std::fmt::Write as _;

/// Encodes a name as one token. An empty name becomes `=`, which no other name does.
#[must_use]
pub fn encode(name: &str) -> String {
    if name.is_empty() {
        return "=".to_owned();
    }
    let mut token = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => token.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => drop(write!(token, "={byte:02x}")),
        }
    }
    token
}

/// The name of a token; `None` if [`encode`] does not make this token.
#[must_use]
pub fn decode(token: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(token.len());
    let mut rest = token.bytes();
    while let Some(byte) = rest.next().filter(|_| token != "=") {
        match byte {
            b'=' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                bytes.push(u8::try_from(high * 16 + low).ok()?);
            }
            other => bytes.push(other),
        }
    }
    let name = String::from_utf8(bytes).ok()?;
    (encode(&name) == token).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_token_of_its_own() {
        let names = ["", "a", "A-1", "a.b", "*", ">", "a b", "\0", "=", "==", "ü", "team/x", "_", "\u{202e}"];
        for name in names {
            let token = encode(name);
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-=".contains(&byte);
            assert!(!token.is_empty() && token.bytes().all(allowed), "{name:?}: {token}");
            assert_eq!(decode(&token).as_deref(), Some(name));
            assert_eq!(names.iter().filter(|other| encode(other) == token).count(), 1);
        }
        for bad in ["a.b", "=g0", "=4", "=41", "=FF", "=ff", "a=", "_"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
