//! The labels of a tool. The host derives six of them from what the operator granted; what an author claims counts only
//! where the grants leave it open, and takes none of `network`, `file_system` and `privileged` away.
//!
//! | label | holds where |
//! |---|---|
//! | `network` | requests or connections are granted, or a program that may use the network; every MCP server and OpenAPI service |
//! | `file_system` | files are granted, or a program, which reads files |
//! | `privileged` | a program, a secret or a private network is granted |
//! | `read_only` | the grants leave nothing to change (only files and attachments to read, requests of `GET` and `HEAD`, clock, …), or they leave it open (other requests, kept state, calls of other tools, attachments to make) and the author says so |
//! | `destructive` | files to write or a program are granted, or the grants leave it open (other requests, kept state, calls of other tools); not where the author says that it only adds |
//! | `slow` | its source says so |
//!
//! Native code has no grants: its author's word holds. That of another MCP server does not: its tools are `destructive`. What other labels a source gives a tool stand as they are; of
//! the six it may give `slow` only, native code all. The operator may add any, and takes none away.

use std::collections::BTreeSet;
use std::sync::Arc;

use toolbay_policy::capability::attachment::Access;
use toolbay_policy::{Grants, Policy};

use crate::tool::{ToolDef, ToolSource};

/// Does not change anything.
pub const READ_ONLY: &str = "read_only";
/// May change or remove what is there.
pub const DESTRUCTIVE: &str = "destructive";
/// Reaches the network.
pub const NETWORK: &str = "network";
/// Reaches files.
pub const FILE_SYSTEM: &str = "file_system";
/// Takes its time.
pub const SLOW: &str = "slow";
/// Reaches what few should: programs, credentials, private networks.
pub const PRIVILEGED: &str = "privileged";

/// The labels that the host derives.
pub const DERIVED: [&str; 6] = [DESTRUCTIVE, FILE_SYSTEM, NETWORK, PRIVILEGED, READ_ONLY, SLOW];

/// Methods that change nothing (RFC 9110, 9.2.1).
const SAFE_METHODS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

/// What grants let a tool do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each one a column of the table above")]
pub struct Effects {
    /// It reaches the network.
    pub network: bool,
    /// It reaches files.
    pub file_system: bool,
    /// It reaches programs, credentials or private networks.
    pub privileged: bool,
    /// It can certainly change what is there.
    pub changes: bool,
    /// It may be able to: what it does with its grants, they do not say.
    pub may_change: bool,
    /// It can add something, and change nothing thereby.
    pub adds: bool,
}

impl Effects {
    /// What these grants let a tool do.
    #[must_use]
    pub fn of(grants: &Grants, policy: &Policy) -> Self {
        let online = |name: &str| policy.program(name).is_none_or(|program| program.network);
        let programs = !grants.process.is_empty();
        let asks_only =
            |methods: &BTreeSet<String>| methods.iter().all(|m| SAFE_METHODS.contains(&m.as_str()));
        let sends = grants.net.iter().any(|rule| !rule.methods.as_ref().is_some_and(asks_only));
        Self {
            network: !grants.net.is_empty() || grants.process.iter().any(|rule| online(rule.program())),
            file_system: programs || !grants.fs_read.is_empty() || !grants.fs_write.is_empty(),
            privileged: programs || !grants.secrets.is_empty() || !grants.net_private.is_empty(),
            changes: programs || !grants.fs_write.is_empty(),
            may_change: sends || !grants.kv.is_empty() || !grants.invoke.is_empty(),
            adds: grants.attachments.iter().any(|rule| rule.access == Access::Create),
        }
    }

    /// What either lets a tool do: it may be called under the grants of several profiles.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            network: self.network || other.network,
            file_system: self.file_system || other.file_system,
            privileged: self.privileged || other.privileged,
            changes: self.changes || other.changes,
            may_change: self.may_change || other.may_change,
            adds: self.adds || other.adds,
        }
    }
}

/// All labels of a tool, in their order. `more` are the operator's.
#[must_use]
pub fn derive(tool: &ToolDef, effects: Option<Effects>, more: &[String]) -> Arc<[Arc<str>]> {
    let (claims, known) = (tool.traits, effects.unwrap_or_default());
    let native = *tool.source == ToolSource::Builtin;
    let remote = matches!(*tool.source, ToolSource::Mcp { .. } | ToolSource::OpenApi { .. });
    // Nobody has looked at what another server says of itself; rules of permission stand on these labels.
    let believed = !matches!(*tool.source, ToolSource::Mcp { .. });
    let open = effects.is_none() || known.may_change || known.adds;
    let read_only = !known.changes && (!open || (claims.read_only && believed));
    let destroys = known.changes || known.may_change || effects.is_none();
    let derived = [
        (NETWORK, known.network || remote),
        (FILE_SYSTEM, known.file_system),
        (PRIVILEGED, known.privileged),
        (READ_ONLY, read_only),
        (DESTRUCTIVE, destroys && !read_only && !(claims.additive && believed)),
    ];
    let of_host = derived.iter().filter(|(_, holds)| *holds).map(|(tag, _)| *tag);
    let of_source = tool.keywords.tags.iter().map(String::as_str);
    let of_source = of_source.filter(|tag| native || *tag == SLOW || !DERIVED.contains(tag));
    let of_operator = more.iter().map(String::as_str);
    let mut all: BTreeSet<&str> = of_host.chain(of_source).chain(of_operator).collect();
    if all.contains(DESTRUCTIVE) {
        all.remove(READ_ONLY);
    }
    all.into_iter().map(Arc::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Entry;
    use crate::testing::{mcp_tool, native_tool, plugin_tool};
    use std::path::Path;
    use toolbay_policy::capability::{Capability, CapabilityKind};
    use toolbay_policy::name::{PluginId, ToolName};

    const POLICY: &str = r#"
        version = 1
        [programs.ls]
        path = "/bin/ls"
        [programs.curl]
        path = "/bin/curl"
        network = true
        [secrets.key]
        from = "env:KEY"
        origins = ["https://example.com"]
        [plugins.p.grant]
        fs_read = ["/srv"]
        fs_write = ["/srv"]
        net = ["https://example.com"]
        process = ["ls *", "curl *"]
        secrets = ["key"]
        kv = ["tool"]
        clock = true
        random = true
        attachments = ["read", "create"]
        [profile.nothing]
        fs_read = []
    "#;

    fn derived(mut entry: Entry, wishes: &[(&str, &str)], claims: &str, labels: &[&str]) -> String {
        let policy = Policy::parse(POLICY, Path::new("/w"), None).unwrap();
        let def = Arc::get_mut(&mut entry.def).unwrap();
        def.traits.read_only = claims.contains("read-only");
        def.traits.additive = claims.contains("additive");
        def.traits.closed_world = claims.contains("closed");
        def.keywords.tags = labels.iter().map(ToString::to_string).collect();
        let wish = |(kind, target): &(&str, &str)| Capability {
            kind: CapabilityKind::parse(kind),
            target: (*target).to_owned(),
            optional: false,
            reason: None,
        };
        let wishes: Vec<_> = wishes.iter().map(wish).collect();
        let effects = (entry.def.source.plugin()).map(|id: &PluginId| {
            let grants = policy.grant(id, &ToolName::new("t").unwrap(), &wishes, None);
            assert_eq!(grants.missing().count(), 0, "{grants:?}");
            Effects::of(&grants, &policy)
        });
        derive(&entry.def, effects, &[]).join(" ")
    }

    #[test]
    fn the_grants_decide_and_claims_fill_what_they_leave_open() {
        let get = ("net", "GET,HEAD https://example.com");
        for (wishes, claims, expect) in [
            (&[][..], "", "read_only"),
            (&[("clock", ""), ("random", "")], "", "read_only"),
            (&[("fs-read", "/srv")], "", "file_system read_only"),
            (&[("fs-write", "/srv")], "", "destructive file_system"),
            (&[("fs-write", "/srv")], "read-only closed", "destructive file_system"),
            (&[("fs-write", "/srv")], "additive", "file_system"),
            (&[("net", "https://example.com")], "", "destructive network"),
            (&[("net", "https://example.com")], "read-only closed", "network read_only"),
            (&[("net", "https://example.com")], "additive", "network"),
            (&[get], "", "network read_only"),
            (&[("kv", "tool")], "", "destructive"),
            (&[("kv", "tool")], "read-only", "read_only"),
            (&[("attachments", "read")], "", "read_only"),
            (&[("attachments", "create")], "", ""),
            (&[("process", "ls *")], "read-only", "destructive file_system privileged"),
            (&[("process", "curl *")], "additive closed", "file_system network privileged"),
            (&[("secret", "key")], "closed", "privileged read_only"),
        ] {
            assert_eq!(derived(plugin_tool("p", "t"), wishes, claims, &[]), expect, "{wishes:?} {claims}");
        }
    }

    #[test]
    fn a_sources_labels_stand_but_for_those_of_the_host() {
        let labels = ["math", "read_only", "slow", "network", "privileged"];
        for (entry, claims, expect) in [
            (plugin_tool("p", "t"), "", "math read_only slow"),
            (mcp_tool("gh", "t"), "", "destructive math network slow"),
            (mcp_tool("gh", "t"), "read-only closed", "destructive math network slow"),
            (native_tool("t"), "read-only", "math network privileged read_only slow"),
            (native_tool("t"), "additive", "math network privileged read_only slow"),
            (native_tool("t"), "", "destructive math network privileged slow"),
        ] {
            assert_eq!(derived(entry, &[], claims, &labels), expect, "{claims}");
        }
    }

    #[test]
    fn the_operator_adds_labels_and_takes_none_away() {
        let def = plugin_tool("p", "t").def;
        let of = |effects: Effects, more: &[&str]| {
            derive(&def, Some(effects), &more.iter().map(ToString::to_string).collect::<Vec<_>>()).join(" ")
        };
        let writes = Effects { changes: true, file_system: true, ..Effects::default() };
        assert_eq!(of(Effects::default(), &["destructive", "mine"]), "destructive mine");
        assert_eq!(of(writes, &["read_only"]), "destructive file_system");
    }
}
