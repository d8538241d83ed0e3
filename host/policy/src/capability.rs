//! What a tool's author declares that the tool wants to reach (`types.wit`, `capability`). A request, no more.

pub mod attachment;
pub mod environment;
pub mod floor;
mod glob;
pub mod invoke_rule;
pub mod kv;
pub mod net;
pub mod program;
pub mod reach;
pub mod secret;

use serde::{Deserialize, Serialize};

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

/// The kinds of capability of the contract.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapabilityKind {
    /// Read files below a folder.
    FsRead,
    /// Write files below a folder.
    FsWrite,
    /// Send HTTP requests.
    Net,
    /// Run programs.
    Process,
    /// Use a credential.
    Secret,
    /// Keep state.
    Kv,
    /// Read an environment variable.
    Env,
    /// Read and create attachments.
    Attachments,
    /// Read the wall clock.
    Clock,
    /// Get unpredictable bytes.
    Random,
    /// Call other tools.
    Invoke,
    /// A kind this host does not know; always denied.
    #[serde(untagged)]
    Unknown(String),
}

impl CapabilityKind {
    /// Reads a kind as the contract writes it.
    #[must_use]
    pub fn parse(kind: &str) -> Self {
        match kind {
            "fs-read" => Self::FsRead,
            "fs-write" => Self::FsWrite,
            "net" => Self::Net,
            "process" => Self::Process,
            "secret" => Self::Secret,
            "kv" => Self::Kv,
            "env" => Self::Env,
            "attachments" => Self::Attachments,
            "clock" => Self::Clock,
            "random" => Self::Random,
            "invoke" => Self::Invoke,
            other => Self::Unknown(other.chars().take(64).collect()),
        }
    }

    /// The kind as the contract writes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::FsRead => "fs-read",
            Self::FsWrite => "fs-write",
            Self::Net => "net",
            Self::Process => "process",
            Self::Secret => "secret",
            Self::Kv => "kv",
            Self::Env => "env",
            Self::Attachments => "attachments",
            Self::Clock => "clock",
            Self::Random => "random",
            Self::Invoke => "invoke",
            Self::Unknown(other) => other,
        }
    }
}

/// An interface that a component imports and that no tool of it declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undeclared<'a> {
    /// The interface.
    pub import: &'a str,
    /// The kinds of capability of which one would explain it.
    pub kinds: &'static [CapabilityKind],
    /// Whether it is an interface of the contract; the others are WASI's, which come with languages.
    pub of_contract: bool,
}

/// The interfaces that reach something, by how their names begin. Not here: `wasi:cli/environment` and
/// `wasi:random/insecure-seed`, which every program of some languages imports.
const REACHING: [(&str, &[CapabilityKind]); 14] = [
    ("toolbay:plugin/kv@", &[CapabilityKind::Kv]),
    ("toolbay:plugin/secrets@", &[CapabilityKind::Secret]),
    ("toolbay:plugin/http-client@", &[CapabilityKind::Net]),
    ("toolbay:plugin/files@", &[CapabilityKind::FsRead, CapabilityKind::FsWrite]),
    ("toolbay:plugin/process@", &[CapabilityKind::Process]),
    ("toolbay:plugin/attachments@", &[CapabilityKind::Attachments]),
    ("toolbay:plugin/tool-invoke@", &[CapabilityKind::Invoke]),
    ("wasi:filesystem/", &[CapabilityKind::FsRead, CapabilityKind::FsWrite]),
    ("wasi:sockets/", &[CapabilityKind::Net]),
    ("wasi:http/", &[CapabilityKind::Net]),
    ("wasi:clocks/wall-clock@", &[CapabilityKind::Clock]),
    ("wasi:clocks/timezone@", &[CapabilityKind::Clock]),
    ("wasi:random/random@", &[CapabilityKind::Random]),
    ("wasi:random/insecure@", &[CapabilityKind::Random]),
];

/// How many interfaces of the world `imports` reach something; they stand first.
const OF_CONTRACT: usize = 6;

/// What a component imports and no declaration of its tools explains, in the order of the imports.
#[must_use]
pub fn undeclared<'a>(imports: &'a [String], declared: &[Capability]) -> Vec<Undeclared<'a>> {
    let explained = |kinds: &[CapabilityKind]| declared.iter().any(|wish| kinds.contains(&wish.kind));
    let found = imports.iter().filter_map(|import| {
        let (begin, kinds) = REACHING.iter().find(|(begin, _)| import.starts_with(begin))?;
        let of_contract = begin.starts_with("toolbay:");
        (!explained(kinds)).then_some(Undeclared { import, kinds, of_contract })
    });
    found.collect()
}

/// Whether a component imports the contract as a whole, as tools for JavaScript and Python build them: its imports then
/// say nothing about what it does.
#[must_use]
pub fn imports_everything(imports: &[String]) -> bool {
    let has = |begin: &str| imports.iter().any(|import| import.starts_with(begin));
    REACHING.iter().take(OF_CONTRACT).all(|(begin, _)| has(begin))
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
            let found = undeclared(&all, &[wish(CapabilityKind::Env)]);
            let found: Vec<_> = found.iter().map(|one| (one.import, one.of_contract)).collect();
            assert_eq!(found, [(import, of_contract)]);
            assert_eq!(undeclared(&all, &[wish(CapabilityKind::Env), wish(kind)]), []);
        }
        let harmless = [
            "wasi:cli/environment@0.2.6",
            "wasi:random/insecure-seed@0.2.6",
            "wasi:clocks/monotonic-clock@0.2.6",
        ];
        assert_eq!(undeclared(&imports(&harmless), &[]), []);
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
}
