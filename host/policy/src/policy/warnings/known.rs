//! What the checks of a policy compare it with: installed plugins, other sources of tools, and the machine. The caller
//! reads all of it. What it could not read is absent, and only comparisons with that are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::super::Policy;
use crate::capability::Capability;
use crate::capability::net::NetRule;
use crate::capability::path_rule::PathRule;
use crate::capability::program::{Program, SandboxMode};
use crate::mcp_server::ServerTransport;
use crate::permission::SourceLabel;

/// An installed plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownPlugin {
    /// What each of its tools asks for, by the tool's name without the plugin. `None` if it could not be loaded.
    pub tools: Option<BTreeMap<String, Vec<Capability>>>,
    /// The reducers that it declares.
    pub reducers: BTreeSet<String>,
    /// Whether it runs each call in a new instance, whatever the policy says.
    pub ignores_reuse: bool,
    /// A policy setting that it refuses, and the reason.
    pub refused_setting: Option<(String, String)>,
    /// SHA-256 of its component, in lower-case hex. `None` if it could not be read.
    pub sha256: Option<String>,
}

/// What the document of a service says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownService {
    /// The names of its tools that the document gives, without the service.
    pub tools: BTreeSet<String>,
    /// What its requests reach.
    pub reached: Vec<NetRule>,
    /// SHA-256 of the document, in lower-case hex. `None` if it is not compared.
    pub sha256: Option<String>,
    /// Entries of the section that match nothing in the document: the key and the entry.
    pub unmatched: Vec<(&'static str, String)>,
    /// The chosen operations that cannot be called, each with the reason.
    pub unusable: Vec<(String, String)>,
    /// The number of operations that the section leaves out. `None` if they were not counted.
    pub excluded_count: Option<usize>,
}

/// A tool that rules can match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownTool {
    /// The kind of its source: `builtin`, `plugin`, `mcp` or `openapi`.
    pub kind: &'static str,
    /// The operator's name for the source. Empty for `builtin`.
    pub source: String,
    /// Its tags, derived ones included.
    pub tags: BTreeSet<String>,
    /// The schema of its arguments. `None` if it is not known.
    pub arguments: Option<Value>,
}

impl KnownTool {
    /// The source as rules compare it.
    pub(super) fn label(&self) -> SourceLabel<'_> {
        SourceLabel { kind: self.kind, name: &self.source }
    }
}

/// What a policy can refer to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownNames {
    /// The plugins by id. `None` if no folder of plugins was read; names of plugins and of their tools are then not
    /// compared.
    pub plugins: Option<BTreeMap<String, KnownPlugin>>,
    /// The names of the files in the folders of plugins.
    pub files: BTreeSet<String>,
    /// The services whose documents were read.
    pub services: BTreeMap<String, KnownService>,
    /// The services whose documents are there and cannot be used, each with the reason.
    pub broken_services: BTreeMap<String, String>,
    /// The tools of the MCP servers whose lists were read, by the servers' own names.
    pub servers: BTreeMap<String, BTreeSet<String>>,
    /// The tools by qualified name, native ones included.
    pub tools: BTreeMap<String, KnownTool>,
    /// The toolsets of all tools.
    pub toolsets: BTreeSet<String>,
    /// The tags that tools can have: derived ones, and those of all tools.
    pub tags: BTreeSet<String>,
    /// The built-in reducers. If empty, reducers are not compared.
    pub reducers: BTreeSet<String>,
}

impl KnownNames {
    /// Adds a tool with its tags.
    pub fn add_tool(&mut self, name: String, tool: KnownTool) {
        self.tags.extend(tool.tags.iter().cloned());
        self.tools.insert(name, tool);
    }
}

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// A regular file that this process may execute.
    Program,
    /// Any other regular file.
    File,
    /// A folder.
    Folder,
    /// Any other file type, or a path that cannot be inspected.
    Other,
    /// Nothing exists at the path.
    Missing,
}

/// What the host reads from a file that a policy names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileContent {
    /// Certificates of authorities (PEM).
    Certificates,
    /// The key of a signer.
    PublicKey,
    /// A trust root of Sigstore.
    TrustRoot,
    /// The keys of an authorization server (RFC 7517).
    IssuerKeys,
}

/// A program that the host starts, with its section.
#[derive(Debug, Clone, Copy)]
pub struct ProgramSection<'a> {
    /// The kind of section and the name.
    pub table: [&'a str; 2],
    /// The keys of the lists of folders: to read, to write and to execute.
    pub keys: [&'a str; 3],
    /// The program with its folders.
    pub program: &'a Program,
    /// The arguments, if the policy gives them.
    pub args: Option<&'a [String]>,
}

impl<'a> ProgramSection<'a> {
    /// The lists of folders, each with its key.
    pub(super) fn lists(self) -> [(&'a str, &'a [PathRule]); 3] {
        let ([read, write, execute], program) = (self.keys, self.program);
        [(read, &program.read), (write, &program.write), (execute, &program.execute)]
    }
}

impl Policy {
    /// The programs that the host starts: those of plugins, and MCP servers.
    pub(super) fn program_sections(&self) -> impl Iterator<Item = ProgramSection<'_>> {
        let programs = self.programs().map(|(name, program)| {
            let keys = ["read", "write", "execute"];
            ProgramSection { table: ["programs", name], keys, program, args: None }
        });
        let servers = self.mcp_servers().filter_map(|server| {
            let ServerTransport::Stdio(child) = &server.transport else { return None };
            let (table, keys) = (["mcp", server.name.as_str()], ["fs_read", "fs_write", "execute"]);
            Some(ProgramSection { table, keys, program: &child.program, args: Some(&child.args) })
        });
        programs.chain(servers)
    }
}

/// Why a run would not start a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramRefusal<'a> {
    /// The line that is refused: the key of its list, and its position there. `None` for the whole section.
    pub line: Option<(&'a str, usize)>,
    /// The reason.
    pub message: String,
}

/// What the checks ask about the machine. A fact that is not known is no problem.
pub trait Machine {
    /// What a path leads to, after following links.
    fn path_kind(&self, path: &Path) -> PathKind;

    /// Whether the environment has a variable.
    fn has_variable(&self, name: &str) -> bool;

    /// Why a run would not grant a line of `fs_read` or `fs_write` to a plugin.
    fn grant_refusal(&self, _rule: &PathRule, _writing: bool) -> Option<String> {
        None
    }

    /// Why a run would not start a program.
    fn program_refusal<'a>(&self, _section: ProgramSection<'a>) -> Option<ProgramRefusal<'a>> {
        None
    }

    /// Why a run could not use a file.
    fn file_problem(&self, _file: &Path, _content: FileContent) -> Option<String> {
        None
    }

    /// The strictest `sandbox` with which a program runs here. `None` on a system without a sandbox.
    fn sandbox(&self) -> Option<SandboxMode> {
        None
    }

    /// What is wrong with the value of a secret. The text contains nothing of it.
    fn secret_problem(&self, _name: &str) -> Option<String> {
        None
    }
}

/// A machine on which every path exists and every variable is set, for tests: programs in `/bin`, files with an
/// extension, and else folders.
#[cfg(test)]
pub(in crate::policy) struct CompleteMachine;

#[cfg(test)]
impl Machine for CompleteMachine {
    fn path_kind(&self, path: &Path) -> PathKind {
        if path.starts_with("/bin") || path.extension().is_some() {
            PathKind::Program
        } else {
            PathKind::Folder
        }
    }

    fn has_variable(&self, _: &str) -> bool {
        true
    }
}
