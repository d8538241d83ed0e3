//! Files and folders in a policy: they must exist and have the expected kind, and no line should include the whole machine.

use std::path::Path;

use super::super::{DocumentLocation, Policy};
use super::{CheckInput, CheckReport, FileContent, Machine, PathKind, ProgramRefusal, ProgramSection};
use crate::admin::AdminAddress;
use crate::capability::path_rule::PathRule;
use crate::capability::secret::SecretSource;
use crate::mcp_server::ServerTransport;
use crate::problem::PolicyProblem;
use crate::route::OutboundRoute;
use crate::trust::TrustRequirement;

/// The expected kind of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExpectedKind {
    Program,
    File,
    /// A file with this content.
    Content(FileContent),
    Folder,
    Anything,
}

/// Adds a problem for each path that has not the expected kind.
pub(super) fn check_paths(input: &CheckInput<'_>, report: &mut CheckReport) {
    let policy = input.policy;
    let mut found = PathCheck { machine: input.machine, report };
    let workspace = policy.workspace();
    let is_there =
        found.check(workspace, ExpectedKind::Folder, PolicyProblem::at_keys(["workspace"], String::new()));
    for section in policy.program_sections() {
        let program = match section.args {
            Some(_) => at_table(section.table, &["command"]).in_entry(0),
            None => at_table(section.table, &["path"]),
        };
        found.check_program(section, workspace, program);
    }
    for (name, secret) in policy.secrets() {
        if let SecretSource::File(file) = &secret.from {
            found.check(file, ExpectedKind::File, at_table(["secrets", name], &["from"]));
        }
    }
    for server in policy.mcp_servers() {
        if let ServerTransport::Http(endpoint) = &server.transport {
            found.check_route(&endpoint.route, ["mcp", server.name.as_str()]);
        }
    }
    for service in policy.openapi_services() {
        found.check_route(&service.route, ["openapi", service.name.as_str()]);
        if let DocumentLocation::File(file) = &service.document {
            found.check(
                file,
                ExpectedKind::File,
                at_table(["openapi", service.name.as_str()], &["document"]),
            );
        }
    }
    for (host, registry) in policy.registries() {
        found.check_route(&registry.route, ["registry", host.as_str()]);
    }
    found.check_trust(policy);
    let serve = policy.serve();
    let keys = [
        (["serve", "tokens"], serve.tokens.as_deref()),
        (["serve", "request_state_key"], serve.request_state_key.as_deref()),
        (["admin", "tokens"], policy.admin().map(|admin| admin.tokens.as_path())),
    ];
    for (table, file) in keys {
        if let Some(file) = file {
            found.check(file, ExpectedKind::File, at_table(table, &[]));
        }
    }
    if let Some(keys) = policy.serve().oauth.as_ref().and_then(|oauth| oauth.file()) {
        found.check(
            keys,
            ExpectedKind::Content(FileContent::IssuerKeys),
            PolicyProblem::at_keys(["serve", "oauth", "jwks"], String::new()),
        );
    }
    if let Some(AdminAddress::Socket(socket)) = policy.admin().map(|admin| &admin.listen)
        && let Some(folder) = socket.parent()
    {
        found.check(folder, ExpectedKind::Folder, at_table(["admin", "listen"], &[]));
    }
    found.check_granted(policy, is_there);
}

/// Adds a problem for each line of a grant that a run refuses, such as one of a protected path.
pub(super) fn check_grants(input: &CheckInput<'_>, report: &mut CheckReport) {
    for (id, plugin) in &input.policy.plugins {
        let lists = [("fs_read", &plugin.rules.fs_read, false), ("fs_write", &plugin.rules.fs_write, true)];
        for (key, list, writing) in lists {
            for (index, rule) in list.iter().flatten().enumerate() {
                let Some(why) = input.machine.grant_refusal(rule, writing) else { continue };
                let keys = ["plugins", id.as_str(), "grant", key];
                report.push(PolicyProblem::at_keys(keys, why).in_line(index));
            }
        }
    }
}

/// Adds a problem for each line that includes every file of the machine. In a tool's section and in a profile such a line
/// only leaves the grant as it is.
pub(super) fn check_whole_machine(input: &CheckInput<'_>, report: &mut CheckReport) {
    let policy = input.policy;
    let mut check = |table: &[&str], key: &str, list: &[PathRule]| {
        for (index, _) in list.iter().enumerate().filter(|(_, rule)| rule.is_whole_machine()) {
            let keys = table.iter().copied().chain([key]);
            let message = "this line includes every file of the machine";
            let problem = PolicyProblem::at_keys(keys, message).in_line(index);
            let help = Some("name the folders, such as `$workspace`".to_owned());
            report.push(PolicyProblem { help, ..problem });
        }
    };
    for (id, plugin) in &policy.plugins {
        let table = ["plugins", id.as_str(), "grant"];
        check(&table, "fs_read", plugin.rules.fs_read.as_deref().unwrap_or_default());
        check(&table, "fs_write", plugin.rules.fs_write.as_deref().unwrap_or_default());
    }
    for section in policy.program_sections() {
        for (key, list) in section.lists() {
            check(&section.table, key, list);
        }
    }
}

fn at_table(table: [&str; 2], keys: &[&str]) -> PolicyProblem {
    PolicyProblem::at_keys(table.into_iter().chain(keys.iter().copied()), String::new())
}

struct PathCheck<'a> {
    machine: &'a dyn Machine,
    report: &'a mut CheckReport,
}

impl PathCheck<'_> {
    /// Checks the certificates of a section.
    fn check_route(&mut self, route: &OutboundRoute, table: [&str; 2]) {
        if let Some(ca) = &route.ca {
            let certificates = ExpectedKind::Content(FileContent::Certificates);
            self.check(ca, certificates, at_table(table, &["ca"]));
        }
    }

    /// Checks the files of the rules about signatures.
    fn check_trust(&mut self, policy: &Policy) {
        for (index, rule) in policy.trust_rules().enumerate() {
            let TrustRequirement::Signed(signers) = &rule.requirement else { continue };
            if let Some(keyless) = &signers.keyless {
                let problem = PolicyProblem::at_list_entry("trust", index, String::new()).in_key("root");
                self.check(&keyless.root, ExpectedKind::Content(FileContent::TrustRoot), problem);
            }
            for (key, file) in signers.keys.iter().enumerate() {
                let problem = PolicyProblem::at_list_entry("trust", index, String::new()).in_key("keys");
                let problem = problem.in_entry(key);
                self.check(file, ExpectedKind::Content(FileContent::PublicKey), problem);
            }
        }
    }

    /// Checks the folders that grants, sections of tools and profiles name. A missing workspace is reported once.
    fn check_granted(&mut self, policy: &Policy, has_workspace: bool) {
        for (table, rules) in policy.tables() {
            for (key, list) in [("fs_read", &rules.fs_read), ("fs_write", &rules.fs_write)] {
                let list = list.as_deref().unwrap_or_default();
                let is_checked =
                    |rule: &PathRule| has_workspace || !rule.folder().starts_with(policy.workspace());
                for (index, rule) in list.iter().enumerate().filter(|(_, rule)| is_checked(rule)) {
                    let keys = table.iter().copied().chain([key]);
                    let problem = PolicyProblem::at_keys(keys, String::new()).in_line(index);
                    self.check(rule.folder(), ExpectedKind::Anything, problem);
                }
            }
        }
    }

    /// Checks one path. Returns whether it is as expected.
    fn check(&mut self, path: &Path, expected: ExpectedKind, problem: PolicyProblem) -> bool {
        let shown = path.display();
        let message = match (self.machine.path_kind(path), expected) {
            (PathKind::Missing, _) => format!("`{shown}` does not exist"),
            (PathKind::File | PathKind::Program | PathKind::Other, ExpectedKind::Folder) => {
                format!("`{shown}` is not a folder")
            }
            (PathKind::Folder, ExpectedKind::File | ExpectedKind::Content(_) | ExpectedKind::Program) => {
                format!("`{shown}` is a folder, not a file")
            }
            (PathKind::File, ExpectedKind::Program) => format!("`{shown}` is not executable"),
            (_, ExpectedKind::Content(content)) => match self.machine.file_problem(path, content) {
                Some(why) => format!("`{shown}` cannot be used: {why}"),
                None => return true,
            },
            _ => return true,
        };
        self.report.push(PolicyProblem { message, ..problem });
        false
    }

    /// Checks the file and the folders of a program that the host starts.
    fn check_program(&mut self, section: ProgramSection<'_>, workspace: &Path, problem: PolicyProblem) {
        let ProgramSection { table, program, .. } = section;
        if self.check(&program.path, ExpectedKind::Program, problem)
            && let Some(ProgramRefusal { line, message }) = self.machine.program_refusal(section)
        {
            let problem = match line {
                Some((list, index)) => at_table(table, &[list]).in_line(index),
                None => at_table(table, &[]),
            };
            self.report.push(PolicyProblem { message, ..problem });
        }
        if program.cwd != workspace {
            self.check(&program.cwd, ExpectedKind::Folder, at_table(table, &["cwd"]));
        }
        for (key, list) in section.lists() {
            for (index, rule) in list.iter().enumerate().filter(|(_, rule)| rule.folder() != workspace) {
                self.check(rule.folder(), ExpectedKind::Anything, at_table(table, &[key]).in_line(index));
            }
        }
    }
}
