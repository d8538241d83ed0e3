//! Capabilities that a tool's author declares (`types.wit`, `capability`). A declaration is a request and grants
//! nothing.

pub mod attachment;
pub mod environment;
mod excluding_list;
mod glob;
pub mod invoke_rule;
pub(crate) mod kind;
pub mod kv;
pub(crate) mod list;
pub mod net;
pub mod path_rule;
pub mod program;
pub mod protected_paths;
pub mod secret;
pub mod switch;

use serde::{Deserialize, Serialize};

pub use kind::{CapabilityKind, GrantKey};

/// A declared capability.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// The kind of capability.
    pub kind: CapabilityKind,
    /// What the tool wants to access: a folder, a host, a name.
    pub target: String,
    /// Whether the tool also works without it.
    pub optional: bool,
    /// The author's reason, for the operator who decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The target that stands for everything that the call's profile allows.
pub(crate) const FROM_PROFILE: &str = "from-profile";

/// Returns why no operator could grant the target of a capability, or `None` if one could. Unknown kinds are not
/// checked.
#[must_use]
pub fn unusable_target(capability: &Capability) -> Option<String> {
    if capability.target == FROM_PROFILE {
        None
    } else {
        kind::unusable_target(&capability.kind, &capability.target)
    }
}

/// An imported interface that no declaration of the component's tools explains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndeclaredImport<'a> {
    /// The interface.
    pub import: &'a str,
    /// The kinds of capability that would explain it.
    pub kinds: Vec<&'static CapabilityKind>,
    /// Whether the contract defines the interface. All others are WASI interfaces, which language toolchains add.
    pub is_contract: bool,
}

/// Returns the imports that no declaration explains, in the order of the imports.
///
/// `wasi:random/insecure-seed` and `wasi:cli/environment` need no declaration: the runtimes of languages import them in
/// every component, and without a grant the environment is empty.
#[must_use]
pub fn undeclared_imports<'a, 'c>(
    imports: &'a [String],
    declared: impl IntoIterator<Item = &'c Capability>,
) -> Vec<UndeclaredImport<'a>> {
    let declared: Vec<_> = declared.into_iter().map(|capability| &capability.kind).collect();
    let found = imports.iter().filter_map(|import| {
        let reached = |begins: &[&str]| begins.iter().any(|begin| import.starts_with(begin));
        let kinds: Vec<_> = CapabilityKind::INTERFACES
            .iter()
            .filter(|(kind, begins)| *kind != CapabilityKind::Env && reached(begins))
            .map(|(kind, _)| kind)
            .collect();
        let explained = declared.iter().any(|kind| kinds.contains(kind));
        let of_contract = import.starts_with(CONTRACT_PREFIX);
        (!kinds.is_empty() && !explained).then_some(UndeclaredImport {
            import,
            kinds,
            is_contract: of_contract,
        })
    });
    found.collect()
}

/// Prefix of the interfaces that the contract defines.
const CONTRACT_PREFIX: &str = "toolbay:";

/// Whether a component imports the whole contract, as the JavaScript and Python toolchains do. Its imports then do
/// not show what it uses. `tool-invoke` is not counted.
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
        let capability = |kind| Capability { kind, target: "x".to_owned(), optional: true, reason: None };
        for (import, kind, of_contract) in [
            ("toolbay:plugin/kv@0.1.0", CapabilityKind::Kv, true),
            ("toolbay:plugin/files@0.1.0", CapabilityKind::FsWrite, true),
            ("toolbay:plugin/tool-invoke@0.1.0", CapabilityKind::Invoke, true),
            ("wasi:filesystem/types@0.2.12", CapabilityKind::FsRead, false),
            ("wasi:sockets/tcp@0.2.0", CapabilityKind::Net, false),
            ("wasi:clocks/wall-clock@0.2.6", CapabilityKind::Clock, false),
            ("wasi:clocks/system-clock@0.3.0", CapabilityKind::Clock, false),
            ("wasi:keyvalue/store@0.2.0-draft", CapabilityKind::Kv, false),
            ("wasi:random/random@0.2.6", CapabilityKind::Random, false),
        ] {
            let all = imports(&["toolbay:plugin/context@0.1.0", import, "wasi:io/streams@0.2.0"]);
            let env = capability(CapabilityKind::Env);
            let found = undeclared_imports(&all, [&env]);
            let found: Vec<_> = found.iter().map(|one| (one.import, one.is_contract)).collect();
            assert_eq!(found, [(import, of_contract)]);
            assert_eq!(undeclared_imports(&all, &[env, capability(kind)]), []);
        }
        let harmless = [
            "wasi:random/insecure-seed@0.2.6",
            "wasi:clocks/monotonic-clock@0.2.6",
            "wasi:cli/environment@0.2.6",
        ];
        assert_eq!(undeclared_imports(&imports(&harmless), &[]), []);
    }

    #[test]
    fn a_component_that_imports_the_whole_contract_is_recognized() {
        let worlds = include_str!("../../../wit/worlds.wit");
        let (_, body) = worlds.split_once("world imports {").unwrap();
        let (body, _) = body.split_once('}').unwrap();
        let names = body.split(';').filter_map(|line| line.trim().strip_prefix("import "));
        let all: Vec<String> = names.map(|name| format!("toolbay:plugin/{name}@0.1.0")).collect();
        assert!(imports_everything(&all));
        let without_store: Vec<String> = all.iter().filter(|name| !name.contains("/kv@")).cloned().collect();
        assert!(!imports_everything(&without_store));
        assert!(!imports_everything(&[]));
    }

    #[test]
    fn a_target_that_no_policy_can_grant_is_refused() {
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
            ("net", "https://", "not a valid host"),
            ("net", "https://256.1.1.1", "not a valid host"),
            ("net", "https://*.*", "not a valid host"),
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
            let problem = unusable_target(&capability(kind, target));
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
            assert_eq!(unusable_target(&capability(kind, target)), None, "{kind} {target}");
        }
    }

    fn capability(kind: &str, target: &str) -> Capability {
        let kind = CapabilityKind::parse(kind);
        Capability { kind, target: target.to_owned(), optional: false, reason: None }
    }
}
