//! Addresses of resources of other servers, as clients of this host see them: `toolbay://mcp/SERVER/`, followed by the
//! unchanged URI of the server. The prefix keeps a server from naming a resource of another server or of this host, and
//! a URI that a client expands from a template leads back to the server of the template.

use std::borrow::Cow;

use toolbay_core::neutral_text;
use toolbay_policy::hidden_chars::first_hidden;

/// Prefix of all addresses; the server's name follows.
const PREFIX: &str = "toolbay://mcp/";
/// Longest URI of a server, in bytes.
const MAX_URI: usize = 2048;

/// The address of a resource of another server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResourceAddress<'a> {
    pub(super) server: &'a str,
    /// The URI on the server.
    pub(super) server_uri: &'a str,
}

impl<'a> ResourceAddress<'a> {
    /// Whether a URI addresses a resource of another server.
    pub(crate) fn has_bridge_prefix(uri: &str) -> bool {
        uri.starts_with(PREFIX)
    }

    /// Splits an address into the server and its URI. `None` if the URI is not safe.
    pub(super) fn parse(uri: &'a str) -> Option<Self> {
        let (server, own) = uri.strip_prefix(PREFIX)?.split_once('/')?;
        is_safe_uri(own).then_some(Self { server, server_uri: own })
    }

    /// The address as clients see it.
    pub(super) fn client_uri(self) -> Option<String> {
        Self::to_client_uri(self.server, self.server_uri)
    }

    /// The address under which clients see a URI of a server. `None` if the URI is not safe.
    pub(super) fn to_client_uri(server: &str, own: &str) -> Option<String> {
        is_safe_uri(own).then(|| format!("{PREFIX}{server}/{own}"))
    }
}

/// Whether every reader understands a URI in the same way: it has no hidden characters, no template tokens and no dot
/// segments.
fn is_safe_uri(own: &str) -> bool {
    let dots = |part: &str| {
        let plain = part.to_ascii_lowercase().replace("%2e", ".");
        plain == "." || plain == ".."
    };
    !own.is_empty()
        && own.len() <= MAX_URI
        && first_hidden(own).is_none()
        && !own.chars().any(|c| c.is_whitespace() || c == '\\')
        && matches!(neutral_text::neutralize(own), Cow::Borrowed(_))
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
            let ours = ResourceAddress::to_client_uri("a", own).unwrap();
            assert_eq!(
                ResourceAddress::parse(&ours),
                Some(ResourceAddress { server: "a", server_uri: own }),
                "{own}"
            );
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
            assert_eq!(ResourceAddress::to_client_uri("a", unsound), None, "{unsound:?}");
            assert_eq!(ResourceAddress::parse(&format!("{PREFIX}a/{unsound}")), None, "{unsound:?}");
        }
        assert_eq!(ResourceAddress::to_client_uri("a", &"x".repeat(MAX_URI + 1)), None);
        for other in ["toolbay://mcp/a", "toolbay://output/1", "attachment:1", "note://1"] {
            assert_eq!(ResourceAddress::parse(other), None, "{other}");
        }
    }
}
