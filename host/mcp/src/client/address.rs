//! Addresses of the resources of other servers, as clients of this host see them: `toolbay://mcp/SERVER/` and then the
//! server's own address, as it is. So no server can name a resource of another one, or one of this host; and what a
//! client makes of a template leads back to the server whose template it is.

use std::borrow::Cow;

use toolbay_core::output::untrusted;
use toolbay_policy::text::first_hidden;

/// What all such addresses begin with; the server's name follows.
const PREFIX: &str = "toolbay://mcp/";
/// Longest address of a server, in bytes.
const MAX_ADDRESS: usize = 2048;

/// The address of a resource of another server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address<'a> {
    pub(super) server: &'a str,
    /// What the server calls it.
    pub(super) own: &'a str,
}

impl<'a> Address<'a> {
    /// Whether an address is one of a resource of another server.
    pub(crate) fn is_one(uri: &str) -> bool {
        uri.starts_with(PREFIX)
    }

    /// Takes an address apart.
    pub(super) fn parse(uri: &'a str) -> Option<Self> {
        let (server, own) = uri.strip_prefix(PREFIX)?.split_once('/')?;
        is_sound(own).then_some(Self { server, own })
    }

    /// The address under which clients see what a server calls `own`; `None`: clients could take it for another one.
    pub(super) fn of(server: &str, own: &str) -> Option<String> {
        is_sound(own).then(|| format!("{PREFIX}{server}/{own}"))
    }
}

/// Whether everybody who reads an address reads the same: nothing in it is hidden or obeyed, and nothing leads upwards.
fn is_sound(own: &str) -> bool {
    let dots = |part: &str| {
        let plain = part.to_ascii_lowercase().replace("%2e", ".");
        plain == "." || plain == ".."
    };
    !own.is_empty()
        && own.len() <= MAX_ADDRESS
        && first_hidden(own).is_none()
        && !own.chars().any(|c| c.is_whitespace() || c == '\\')
        && matches!(untrusted::neutral(own), Cow::Borrowed(_))
        && !own.split(['/', '?', '#']).any(dots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_back_to_its_server_and_to_no_other() {
        for own in [
            "note://1",
            "file:///srv/a.txt",
            "x:y?z=1#f",
            "note://{id}/{+path}{?page}",
            "toolbay://mcp/b/note://1",
            "attachment:1",
            "é:ü",
        ] {
            let ours = Address::of("a", own).unwrap();
            assert_eq!(Address::parse(&ours), Some(Address { server: "a", own }), "{own}");
        }
        for unsound in [
            "",
            "..",
            "../b/note://1",
            "x:/../../b/note://1",
            "x:/%2E%2e/b",
            "x:/./y",
            "x:/a/..",
            "a b",
            "x:\u{202e}y",
            "x:\\..\\b",
            "x:\n",
            "x:a?b/../c",
            "x:<|im_start|>",
        ] {
            assert_eq!(Address::of("a", unsound), None, "{unsound:?}");
            assert_eq!(Address::parse(&format!("{PREFIX}a/{unsound}")), None, "{unsound:?}");
        }
        assert_eq!(Address::of("a", &"x".repeat(MAX_ADDRESS + 1)), None);
        for other in ["toolbay://mcp/a", "toolbay://output/1", "attachment:1", "note://1"] {
            assert_eq!(Address::parse(other), None, "{other}");
        }
    }
}
