//! The tags of a tool. The host derives six tags from the grants. The author's claims count only where the grants
//! leave the answer open, and they never remove `network`, `file_system` or `privileged`.
//!
//! | tag | condition |
//! |---|---|
//! | `network` | the grants include requests, connections or a program with network access; also every MCP server and OpenAPI service |
//! | `file_system` | the grants include files or a program, which can read files |
//! | `privileged` | the grants include a program, a secret or a private network |
//! | `read_only` | the grants exclude changes (files and attachments to read, `GET` and `HEAD` requests, clock, …); or they leave it open (other requests, key-value storage, nested calls, attachments to create) and the author claims it |
//! | `destructive` | the grants include files to write or a program; or they leave it open (other requests, key-value storage, nested calls) and the author does not claim `additive` |
//! | `slow` | the source sets it |
//!
//! Native code has no grants, so its claims count. The claims of an MCP server do not count: its tools are
//! `destructive`. All other tags of a source are kept. A source can set one of the six derived tags, `slow`, and native
//! code can set all. The operator can add any tag but remove none.

use std::collections::BTreeSet;
use std::sync::Arc;

use toolbay_policy::capability::attachment::AttachmentAccess;
use toolbay_policy::capability::{Capability, CapabilityKind};
use toolbay_policy::{Grants, Policy};

use crate::tool::{ToolDef, ToolSource};

/// The tool changes nothing.
pub const READ_ONLY: &str = "read_only";
/// The tool may change or remove existing data.
pub const DESTRUCTIVE: &str = "destructive";
/// The tool can access the network.
pub const NETWORK: &str = "network";
/// The tool can access files.
pub const FILE_SYSTEM: &str = "file_system";
/// The tool is slow.
pub const SLOW: &str = "slow";
/// Calls of the tool outlast what clients wait for: over MCP they need a client that supports tasks.
pub const TASK_REQUIRED: &str = "task_required";
/// The tool can access programs, credentials or private networks.
pub const PRIVILEGED: &str = "privileged";

/// The tags that the host derives.
pub const DERIVED: [&str; 6] = [DESTRUCTIVE, FILE_SYSTEM, NETWORK, PRIVILEGED, READ_ONLY, SLOW];

/// Safe methods (RFC 9110, section 9.2.1).
const SAFE_METHODS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

/// The effects that grants allow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each one a column of the table above")]
pub struct Effects {
    /// The tool can access the network.
    pub network: bool,
    /// The tool can access files.
    pub file_system: bool,
    /// The tool can access programs, credentials or private networks.
    pub privileged: bool,
    /// The tool can change existing data.
    pub changes: bool,
    /// The grants do not determine whether the tool can change existing data.
    pub may_change: bool,
    /// The tool can add data without changing any.
    pub adds: bool,
}

impl Effects {
    /// The effects that these grants allow.
    #[must_use]
    pub fn from_grants(grants: &Grants, policy: &Policy) -> Self {
        let online = |name: &str| policy.program(name).is_none_or(|program| program.network);
        let programs = !grants.process.is_empty();
        let only_reads =
            |methods: &BTreeSet<String>| methods.iter().all(|m| SAFE_METHODS.contains(&m.as_str()));
        let may_send = grants.net.iter().any(|rule| !rule.methods.as_ref().is_some_and(only_reads));
        Self {
            network: !grants.net.is_empty() || grants.process.iter().any(|rule| online(rule.program())),
            file_system: programs || !grants.fs_read.is_empty() || !grants.fs_write.is_empty(),
            privileged: programs || !grants.secrets.is_empty() || !grants.net_private.is_empty(),
            changes: programs || !grants.fs_write.is_empty(),
            may_change: may_send || !grants.kv.is_empty() || !grants.invoke.is_empty(),
            adds: grants.attachments.iter().any(|rule| rule.access == AttachmentAccess::Create),
        }
    }

    /// The union of two effects, for a tool that can be called under the grants of several profiles.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
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

/// The derived tags that a tool may have under some policy. `kind` is the kind of its source, and `declared` are the
/// capabilities that it requests: no policy grants more.
pub fn possible_tags<'a>(
    kind: &'a str,
    declared: &'a [Capability],
) -> impl Iterator<Item = &'static str> + 'a {
    use CapabilityKind::{FsRead, FsWrite, Invoke, Kv, Net, Process, Secret};
    let asks = move |kinds: &[CapabilityKind]| declared.iter().any(|one| kinds.contains(&one.kind));
    DERIVED.into_iter().filter(move |tag| match (kind, *tag) {
        ("mcp", READ_ONLY) | ("openapi", FILE_SYSTEM) => false,
        ("plugin", NETWORK) => asks(&[Net, Process]),
        ("plugin", FILE_SYSTEM) => asks(&[FsRead, FsWrite, Process]),
        ("plugin", PRIVILEGED) => asks(&[Process, Secret, Net]),
        ("plugin", DESTRUCTIVE) => asks(&[FsWrite, Process, Net, Kv, Invoke]),
        _ => true,
    })
}

/// All tags of a tool, sorted. `more` are the operator's tags.
#[must_use]
pub fn derive(tool: &ToolDef, effects: Option<Effects>, more: &[String]) -> Arc<[Arc<str>]> {
    let (claims, known) = (tool.traits, effects.unwrap_or_default());
    let native = *tool.source == ToolSource::Builtin;
    let remote = matches!(*tool.source, ToolSource::Mcp { .. } | ToolSource::OpenApi { .. });
    // The claims of an MCP server are unverified, and permission rules depend on these tags.
    let is_trusted = !matches!(*tool.source, ToolSource::Mcp { .. });
    let open = effects.is_none() || known.may_change || known.adds;
    let read_only = !known.changes && (!open || (claims.read_only && is_trusted));
    let destroys = known.changes || known.may_change || effects.is_none();
    let derived = [
        (NETWORK, known.network || remote),
        (FILE_SYSTEM, known.file_system),
        (PRIVILEGED, known.privileged),
        (READ_ONLY, read_only),
        (DESTRUCTIVE, destroys && !read_only && !(claims.additive && is_trusted)),
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
    use crate::tool::fixture::{mcp_def, native_def, plugin_def};
    use std::path::Path;
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

    fn derived(mut def: ToolDef, wishes: &[(&str, &str)], claims: &str, labels: &[&str]) -> String {
        let policy = Policy::parse(POLICY, Path::new("/w"), None).unwrap();
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
        let effects = def.source.plugin().map(|id: &PluginId| {
            let grants = policy.grant(id, &ToolName::new("t").unwrap(), &wishes, None);
            assert_eq!(grants.missing().count(), 0, "{grants:?}");
            Effects::from_grants(&grants, &policy)
        });
        let possible: Vec<&str> = possible_tags(def.source.as_label().kind, &wishes).collect();
        let derived = derive(&def, effects, &[]);
        let mut of_host = derived.iter().filter(|tag| DERIVED.contains(&&***tag));
        assert!(of_host.all(|tag| possible.contains(&&**tag)), "{wishes:?}: {derived:?} beyond {possible:?}");
        derived.join(" ")
    }

    #[test]
    fn grants_decide_and_claims_apply_where_grants_leave_it_open() {
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
            assert_eq!(derived(plugin_def("p", "t"), wishes, claims, &[]), expect, "{wishes:?} {claims}");
        }
    }

    #[test]
    fn a_tool_cannot_have_the_labels_of_what_it_does_not_ask_for() {
        let wish = |kind: &str| Capability {
            kind: CapabilityKind::parse(kind),
            target: String::new(),
            optional: false,
            reason: None,
        };
        for (kind, wishes, never) in [
            ("plugin", &[][..], "destructive file_system network privileged"),
            ("plugin", &["fs-read"], "destructive network privileged"),
            ("plugin", &["net"], "file_system"),
            ("plugin", &["process"], ""),
            ("plugin", &["kv"], "file_system network privileged"),
            ("mcp", &[], "read_only"),
            ("openapi", &[], "file_system"),
            ("builtin", &[], ""),
        ] {
            let wishes: Vec<Capability> = wishes.iter().map(|kind| wish(kind)).collect();
            let possible: Vec<&str> = possible_tags(kind, &wishes).collect();
            let missing: Vec<&str> = DERIVED.into_iter().filter(|tag| !possible.contains(tag)).collect();
            assert_eq!(missing.join(" "), never, "{kind} {wishes:?}");
        }
    }

    #[test]
    fn a_source_keeps_its_labels_except_for_derived_ones() {
        let labels = ["math", "read_only", "slow", "network", "privileged"];
        for (entry, claims, expect) in [
            (plugin_def("p", "t"), "", "math read_only slow"),
            (mcp_def("gh", "t"), "", "destructive math network slow"),
            (mcp_def("gh", "t"), "read-only closed", "destructive math network slow"),
            (native_def("t"), "read-only", "math network privileged read_only slow"),
            (native_def("t"), "additive", "math network privileged read_only slow"),
            (native_def("t"), "", "destructive math network privileged slow"),
        ] {
            assert_eq!(derived(entry, &[], claims, &labels), expect, "{claims}");
        }
    }

    #[test]
    fn the_operator_can_add_labels_but_remove_none() {
        let def = plugin_def("p", "t");
        let of = |effects: Effects, more: &[&str]| {
            derive(&def, Some(effects), &more.iter().map(ToString::to_string).collect::<Vec<_>>()).join(" ")
        };
        let writes = Effects { changes: true, file_system: true, ..Effects::default() };
        assert_eq!(of(Effects::default(), &["destructive", "mine"]), "destructive mine");
        assert_eq!(of(writes, &["read_only"]), "destructive file_system");
    }
}
