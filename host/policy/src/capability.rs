//! What a tool's author declares that the tool wants to reach (`types.wit`, `capability`). A request, no more.

pub mod attachment;
pub mod environment;
pub mod protected_paths;
mod glob;
pub mod invoke_rule;
pub(crate) mod kind;
pub mod kv;
pub(crate) mod list;
pub mod net;
pub mod program;
pub mod path_rule;
pub mod secret;
pub mod switch;

use serde::{Deserialize, Serialize};

pub use kind::{CapabilityKind, GrantKey};

/// One wish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// Of which kind.
    pub kind: CapabilityKind,
    /// What of it: a folder, a host, a name.
    pub target: String,
    /// The tool also works without it.
    pub optional: bool,
    /// Shown to the operator who decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A declaration's target that means: as far as the profile of the call reaches.
pub(crate) const FROM_PROFILE: &str = "from-profile";

/// Why the target of a capability is of no use; `None`: an operator can grant it. Kinds that this host
/// does not know are not judged.
#[must_use]
pub fn unusable_target(wish: &Capability) -> Option<String> {
    if wish.target == FROM_PROFILE { None } else { kind::unusable_target(&wish.kind, &wish.target) }
}

/// An interface that a component imports and that no tool of it declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndeclaredImport<'a> {
    /// The interface.
    pub import: &'a str,
    /// The kinds of capability of which one would explain it.
    pub kinds: Vec<&'static CapabilityKind>,
    /// Whether it is an interface of the contract; the others are WASI's, which come with languages.
    pub is_contract: bool,
}

/// What a component imports and no declaration of its tools explains, in the order of the imports.
/// `wasi:random/insecure-seed` leads to nothing.
#[must_use]
pub fn undeclared_imports<'a, 'c>(
    imports: &'a [String],
    declared: impl IntoIterator<Item = &'c Capability>,
) -> Vec<UndeclaredImport<'a>> {
    let declared: Vec<_> = declared.into_iter().map(|wish| &wish.kind).collect();
    let found = imports.iter().filter_map(|import| {
        let reached = |begins: &[&str]| begins.iter().any(|begin| import.starts_with(begin));
        let kinds: Vec<_> = CapabilityKind::INTERFACES
            .iter()
            .filter(|(_, begins)| reached(begins))
            .map(|(kind, _)| kind)
            .collect();
        let explained = declared.iter().any(|kind| kinds.contains(kind));
        let of_contract = import.starts_with(CONTRACT_PREFIX);
        (!kinds.is_empty() && !explained).then_some(UndeclaredImport { import, kinds, is_contract: of_contract })
    });
    found.collect()
}

/// How the names of the contract's own interfaces begin.
const CONTRACT_PREFIX: &str = "toolbay:";

/// Whether a component imports the contract as a whole, as tools for JavaScript and Python build them: its imports then
/// say nothing about what it does. Calls of other tools are no part of that.
#[must_use]
pub fn imports_everything(imports: &[String]) -> bool {
    let interfaces = CapabilityKind::INTERFACES.iter().filter(|(kind, _)| *kind != CapabilityKind::Invoke);
    let mut of_contract =
        interfaces.flat_map(|(_, begins)| *begins).filter(|begin| begin.starts_with(CONTRACT_PREFIX));
    of_contract.all(|begin| imports.iter().any(|import| import.starts_with(begin)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_import_is_explained_by_a_declaration() {
        let wish = |kind| Capability { kind, target: "x".to_owned(), optional: true, reason: None };
        for (import, kind, of_contract) in [
            ("toolbay:plugin/kv@0.1.0", CapabilityKind::Kv, true),
            ("toolbay:plugin/files@0.1.0", CapabilityKind::FsWrite, true),
            ("toolbay:plugin/tool-invoke@0.1.0", CapabilityKind::Invoke, true),
            ("wasi:filesystem/types@0.2.12", CapabilityKind::FsRead, false),
            ("wasi:sockets/tcp@0.2.0", CapabilityKind::Net, false),
            ("wasi:clocks/wall-clock@0.2.6", CapabilityKind::Clock, false),
            ("wasi:random/random@0.2.6", CapabilityKind::Random, false),
        ] {
            let all = imports(&["toolbay:plugin/context@0.1.0", import, "wasi:io/streams@0.2.0"]);
            let env = wish(CapabilityKind::Env);
            let found = undeclared_imports(&all, [&env]);
            let found: Vec<_> = found.iter().map(|one| (one.import, one.is_contract)).collect();
            assert_eq!(found, [(import, of_contract)]);
            assert_eq!(undeclared_imports(&all, &[env, wish(kind)]), []);
        }
        let harmless = ["wasi:random/insecure-seed@0.2.6", "wasi:clocks/monotonic-clock@0.2.6"];
        assert_eq!(undeclared_imports(&imports(&harmless), &[]), []);
    }

    #[test]
    fn a_component_with_all_of_the_contract_says_nothing_by_it() {
        let all: Vec<&str> = vec![
            "toolbay:plugin/kv@0.1.0",
            "toolbay:plugin/secrets@0.1.0",
            "toolbay:plugin/http-client@0.1.0",
            "toolbay:plugin/files@0.1.0",
            "toolbay:plugin/process@0.1.0",
            "toolbay:plugin/attachments@0.1.0",
        ];
        assert!(imports_everything(&imports(&all)));
        assert!(!imports_everything(&imports(&all[1..])));
        assert!(!imports_everything(&[]));
    }

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
