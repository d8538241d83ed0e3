//! Rules for attachments: reading or creating, and media types.

use std::path::Path;

use crate::rule::GrantRule;

/// Longest type or subtype of a media type, in characters (RFC 6838, section 4.2).
const MAX_MEDIA_PART: usize = 127;
/// The media type of data without a valid one (RFC 2046, section 4.5.1).
pub const UNKNOWN_MEDIA_TYPE: &str = "application/octet-stream";

/// One line of an `attachments` list: `read`, `create`, `read image/*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachmentRule {
    /// The allowed access.
    pub access: AttachmentAccess,
    /// The media types: `image/png`, `image/*`, or `*/*` for all.
    pub media_type_pattern: String,
}

/// Access to attachments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttachmentAccess {
    /// List and read the attachments of the turn.
    Read,
    /// Create attachments.
    Create,
}

impl AttachmentRule {
    /// Whether the rule applies to an attachment of this media type. Parameters and letter case are ignored. An
    /// invalid media type counts as [`UNKNOWN_MEDIA_TYPE`].
    #[must_use]
    pub fn matches(&self, access: AttachmentAccess, media: &str) -> bool {
        let media = media_type(media).unwrap_or_else(|| UNKNOWN_MEDIA_TYPE.to_owned());
        self.access == access
            && intersect_media(&self.media_type_pattern, &media).is_some_and(|both| both == media)
    }
}

/// Normalizes a media type: lower case, without parameters. `None` if it is invalid (RFC 6838), as a wildcard is.
#[must_use]
pub fn media_type(text: &str) -> Option<String> {
    let (kind, sub) = text.split(';').next()?.trim().split_once('/')?;
    (is_media_part(kind) && is_media_part(sub)).then(|| format!("{kind}/{sub}").to_ascii_lowercase())
}

fn is_media_part(part: &str) -> bool {
    part.len() <= MAX_MEDIA_PART
        && part.starts_with(|c: char| c.is_ascii_alphanumeric())
        && part.chars().all(|c| c.is_ascii_alphanumeric() || "!#$&-^_.+".contains(c))
}

fn intersect_media(a: &str, b: &str) -> Option<String> {
    if a == b || a == "*/*" {
        return Some(b.to_owned());
    }
    if b == "*/*" {
        return Some(a.to_owned());
    }
    let (kind_a, sub_a) = a.split_once('/')?;
    let (kind_b, sub_b) = b.split_once('/')?;
    if kind_a != kind_b {
        return None;
    }
    match (sub_a, sub_b) {
        ("*", _) => Some(b.to_owned()),
        (_, "*") => Some(a.to_owned()),
        _ => None,
    }
}

impl GrantRule for AttachmentRule {
    const PATTERN: &'static str = "^(read|create)( .+/.+)?$";

    fn parse(text: &str, _: &Path) -> Result<Self, String> {
        let wrong = || format!("`{text}`: write `read`, `create`, or with a media type, `read image/*`");
        let (access, media) = text.split_once(' ').unwrap_or((text, "*/*"));
        let access = match access {
            "read" => AttachmentAccess::Read,
            "create" => AttachmentAccess::Create,
            _ => return Err(wrong()),
        };
        let part = |part: &str| part == "*" || is_media_part(part);
        let media = media.trim().to_ascii_lowercase();
        match media.split_once('/') {
            Some((kind, sub)) if part(kind) && part(sub) && (kind != "*" || sub == "*") => {
                Ok(Self { access, media_type_pattern: media })
            }
            _ => Err(wrong()),
        }
    }

    fn intersect(&self, other: &Self) -> Option<Self> {
        if self.access != other.access {
            return None;
        }
        intersect_media(&self.media_type_pattern, &other.media_type_pattern)
            .map(|media| Self { access: self.access, media_type_pattern: media })
    }

    fn show(&self, _: &Path) -> String {
        let access = match self.access {
            AttachmentAccess::Read => "read",
            AttachmentAccess::Create => "create",
        };
        if self.media_type_pattern == "*/*" {
            access.to_owned()
        } else {
            format!("{access} {}", self.media_type_pattern)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::covers;
    use proptest::prelude::*;

    fn rule(text: &str) -> Option<AttachmentRule> {
        AttachmentRule::parse(text, Path::new("/")).ok()
    }

    #[test]
    fn valid_rules_are_parsed_and_others_refused() {
        for (text, shown) in [
            ("read", Some("read")),
            ("create", Some("create")),
            ("read */*", Some("read")),
            ("read image/*", Some("read image/*")),
            ("create Image/PNG", Some("create image/png")),
            ("read application/vnd.api+json", Some("read application/vnd.api+json")),
            ("write", None),
            ("", None),
            ("read ", None),
            ("read image", None),
            ("read */png", None),
            ("read image/", None),
            ("read image/p*", None),
            ("read image/png;q=1", None),
            ("read image/png,text/plain", None),
            ("read ../etc", None),
            ("read image/-x", None),
        ] {
            assert_eq!(rule(text).map(|rule| rule.show(Path::new("/"))).as_deref(), shown, "{text:?}");
        }
    }

    #[test]
    fn a_rule_matches_only_its_media_types() {
        for (text, media, takes) in [
            ("read", "image/png", true),
            ("read", "no type at all", true),
            ("read image/*", "image/png", true),
            ("read image/*", "IMAGE/PNG", true),
            ("read text/plain", "text/plain; charset=utf-8", true),
            ("read image/*", "text/plain", false),
            ("read image/*", "imageX/png", false),
            ("read image/png", "image/*", false),
            ("read image/*", "*/*", false),
            ("read image/*", "", false),
            ("read application/octet-stream", "junk", true),
            ("create image/png", "image/png", false),
        ] {
            assert_eq!(rule(text).unwrap().matches(AttachmentAccess::Read, media), takes, "{text} {media}");
        }
    }

    fn rules() -> impl Strategy<Value = AttachmentRule> {
        let text = ("(read|create)", "|\\*/\\*|(image|text|a)/(\\*|png|plain|a)")
            .prop_map(|(access, media)| format!("{access} {media}").trim().to_owned());
        text.prop_map(|text| rule(&text).unwrap())
    }

    proptest! {
        #[test]
        fn the_laws_of_rules_hold(a in rules(), b in rules(), media in "(image|text|a|b)/(png|plain|a|b)") {
            prop_assert_eq!(rule(&a.show(Path::new("/"))), Some(a.clone()));
            prop_assert_eq!(a.intersect(&a), Some(a.clone()));
            prop_assert_eq!(a.intersect(&b), b.intersect(&a));
            if let Some(both) = a.intersect(&b) {
                prop_assert!(covers(&a, &both) && covers(&b, &both));
            }
            for access in [AttachmentAccess::Read, AttachmentAccess::Create] {
                let both = a.intersect(&b).is_some_and(|both| both.matches(access, &media));
                prop_assert_eq!(both, a.matches(access, &media) && b.matches(access, &media));
            }
        }

        #[test]
        fn a_parsed_rule_has_exactly_the_written_media_type(text in "(read|create) [ -~]{0,20}") {
            if let Some(rule) = rule(&text) {
                let (_, media) = text.split_once(' ').unwrap();
                prop_assert_eq!(media.trim().to_ascii_lowercase(), rule.media_type_pattern);
            }
        }
    }
}
