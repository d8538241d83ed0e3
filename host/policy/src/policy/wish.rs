//! Targets of declared capabilities that no policy can grant, or only on the machine of their author.

use std::path::Path;

use super::grant::FROM_PROFILE;
use crate::capability::attachment::AttachmentRule;
use crate::capability::environment::EnvRule;
use crate::capability::invoke_rule::InvokeRule;
use crate::capability::kv::Scope;
use crate::capability::net::NetRule;
use crate::capability::program::ProgramRule;
use crate::capability::reach::Reach;
use crate::capability::secret::SecretRule;
use crate::capability::{Capability, CapabilityKind};
use crate::rule::Rule;

/// Longest name of a file, in bytes (`NAME_MAX` of Linux and macOS).
const MAX_FILE_NAME: usize = 255;

/// Why the target of a capability is of no use; `None`: an operator can grant it. Kinds that this host
/// does not know are not judged.
#[must_use]
pub fn unusable_target(wish: &Capability) -> Option<String> {
    let target = wish.target.as_str();
    let takes_none = matches!(wish.kind, CapabilityKind::Clock | CapabilityKind::Random);
    let is_known = !matches!(wish.kind, CapabilityKind::Unknown(_));
    if target == FROM_PROFILE || takes_none || !is_known {
        return None;
    }
    if target.trim().is_empty() {
        return Some("the target is empty: say what the tool wants to reach".to_owned());
    }
    match &wish.kind {
        CapabilityKind::FsRead | CapabilityKind::FsWrite => path(target),
        CapabilityKind::Net => read::<NetRule>(target),
        CapabilityKind::Process => read::<ProgramRule>(target),
        CapabilityKind::Secret => read::<SecretRule>(target),
        CapabilityKind::Kv => read::<Scope>(target),
        CapabilityKind::Env => read::<EnvRule>(target),
        CapabilityKind::Attachments => read::<AttachmentRule>(target),
        CapabilityKind::Invoke => read::<InvokeRule>(target),
        CapabilityKind::Clock | CapabilityKind::Random | CapabilityKind::Unknown(_) => None,
    }
}

fn read<R: Rule>(target: &str) -> Option<String> {
    R::parse_wish(target, Path::new("/workspace")).err()
}

fn path(target: &str) -> Option<String> {
    if let Some(problem) = read::<Reach>(target) {
        return Some(problem);
    }
    if target.split('/').any(|name| name.len() > MAX_FILE_NAME || name.contains('\0')) {
        return Some("no file can have such a name".to_owned());
    }
    let of_one_machine = target.split(" & ").any(|part| part.trim_start_matches('!').starts_with('/'));
    of_one_machine.then(|| {
        "an absolute path is one of your machine: write `$workspace/…`, or `**` for what the operator chooses".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_policy_can_grant_is_told() {
        let mut wrong = Vec::new();
        for (kind, target, part) in [
            ("fs-read", "", "empty"),
            ("fs-read", "  ", "empty"),
            ("fs-read", "/etc/passwd", "absolute"),
            ("fs-write", "/home/me/notes/**", "absolute"),
            ("fs-read", "$workspace & /srv", "grants nothing"),
            ("fs-read", "notes", "$workspace"),
            ("fs-read", "../notes", "$workspace"),
            ("fs-read", "~/notes", "has a `~`"),
            ("fs-read", "!**/.env", "only excludes"),
            ("fs-read", "$workspace/{a,b}", "a line for each"),
            ("fs-read", "$workspace/../..", ""),
            ("net", "api.example.com", "https://api.example.com"),
            ("net", "https://exa mple.com", ""),
            ("net", "https://", "no host"),
            ("net", "https://256.1.1.1", "no host"),
            ("net", "https://*.*", "no host"),
            ("net", "https://*example.com", "`*`"),
            ("net", "ftp://example.com", "scheme"),
            ("net", "https://example.com:0", "port"),
            ("net", "tcp://example.com", "port"),
            ("process", "/usr/bin/git status", "name of a program"),
            ("secret", "a b", "name of a secret"),
            ("kv", "everything", "`tool`"),
            ("env", "MY VAR", "one variable"),
            ("attachments", "write", "`read`"),
            ("invoke", "*__read", "name of a tool"),
            ("invoke", "", "empty"),
        ] {
            let problem = unusable_target(&wish(kind, target));
            if !problem.as_ref().is_some_and(|problem| problem.contains(part)) {
                wrong.push(format!("{kind} {target:?}: {problem:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        for (kind, target) in [
            ("fs-read", "**"),
            ("fs-read", "$workspace"),
            ("fs-write", "$workspace/**/*.rs"),
            ("fs-read", "from-profile"),
            ("net", "https://*"),
            ("net", "GET,HEAD https://*.example.com:8443/v1/*"),
            ("process", "git status *"),
            ("process", "*"),
            ("secret", "GITHUB"),
            ("kv", "session"),
            ("env", "TZ"),
            ("attachments", "read image/*"),
            ("clock", ""),
            ("random", ""),
            ("invoke", "*"),
            ("time-travel", ""),
        ] {
            assert_eq!(unusable_target(&wish(kind, target)), None, "{kind} {target}");
        }
    }

    fn wish(kind: &str, target: &str) -> Capability {
        let kind = CapabilityKind::parse(kind);
        Capability { kind, target: target.to_owned(), optional: false, reason: None }
    }
}
