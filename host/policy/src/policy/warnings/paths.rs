//! Checks files and folders in a policy: they must exist and have the expected kind.

use std::path::Path;

use super::super::problem::{PathStep, PolicyProblem};
use super::super::{DocumentLocation, Policy};
use super::PathKind;
use crate::capability::path_rule::PathRule;
use crate::capability::program::Program;
use crate::capability::secret::SecretSource;
use crate::mcp_server;
use crate::trust::TrustRequirement;

/// The expected kind of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExpectedKind {
    Program,
    File,
    Folder,
    Anything,
}

/// Returns a problem for each path that has not the expected kind.
pub(super) fn check_paths(policy: &Policy, look: &dyn Fn(&Path) -> PathKind) -> Vec<PolicyProblem> {
    let mut found = PathCheck { look, found: Vec::new() };
    let workspace = policy.workspace();
    let is_there =
        found.check(workspace, ExpectedKind::Folder, PolicyProblem::at_keys(["workspace"], String::new()));
    for (name, program) in policy.programs() {
        let table = ["programs", name];
        found.check(&program.path, ExpectedKind::Program, at_table(table, &["path"]));
        found.check_sandbox(program, workspace, table, ["read", "write", "execute"]);
    }
    for (name, secret) in policy.secrets() {
        if let SecretSource::File(file) = &secret.from {
            found.check(file, ExpectedKind::File, at_table(["secrets", name], &["from"]));
        }
    }
    for server in policy.mcp_servers() {
        let mcp_server::ServerTransport::Stdio(child) = &server.transport else { continue };
        let (table, program) = (["mcp", server.name.as_str()], &child.program);
        let mut command = at_table(table, &["command"]);
        command.path.push(PathStep::Index(0));
        found.check(&program.path, ExpectedKind::Program, command);
        found.check_sandbox(program, workspace, table, ["fs_read", "fs_write", "execute"]);
    }
    for service in policy.openapi_services() {
        if let DocumentLocation::File(file) = &service.document {
            found.check(
                file,
                ExpectedKind::File,
                at_table(["openapi", service.name.as_str()], &["document"]),
            );
        }
    }
    for (host, registry) in policy.registries() {
        if let Some(ca) = &registry.ca {
            found.check(ca, ExpectedKind::File, at_table(["registry", host.as_str()], &["ca"]));
        }
    }
    for (index, rule) in policy.trust_rules().enumerate() {
        let TrustRequirement::Signed(signers) = &rule.requirement else { continue };
        if let Some(keyless) = &signers.keyless {
            let place = PolicyProblem::at_list_entry("trust", index, String::new()).in_key("root");
            found.check(&keyless.root, ExpectedKind::File, place);
        }
        for (key, file) in signers.keys.iter().enumerate() {
            let mut place = PolicyProblem::at_list_entry("trust", index, String::new()).in_key("keys");
            place.path.push(PathStep::Index(key));
            found.check(file, ExpectedKind::File, place);
        }
    }
    if let Some(tokens) = &policy.serve().tokens {
        found.check(tokens, ExpectedKind::File, PolicyProblem::at_keys(["serve", "tokens"], String::new()));
    }
    if let Some(keys) = policy.serve().oauth.as_ref().and_then(|oauth| oauth.file()) {
        found.check(
            keys,
            ExpectedKind::File,
            PolicyProblem::at_keys(["serve", "oauth", "jwks"], String::new()),
        );
    }
    for (table, rules) in policy.tables() {
        for (key, list) in [("fs_read", &rules.fs_read), ("fs_write", &rules.fs_write)] {
            let list = list.as_deref().unwrap_or_default();
            // A missing workspace is reported once.
            let in_reach = |reach: &PathRule| is_there || !reach.folder().starts_with(workspace);
            for (index, reach) in list.iter().enumerate().filter(|(_, reach)| in_reach(reach)) {
                let keys = table.iter().copied().chain([key]);
                let place = PolicyProblem::at_keys(keys, String::new()).in_line(index);
                found.check(reach.folder(), ExpectedKind::Anything, place);
            }
        }
    }
    found.found
}

fn at_table(table: [&str; 2], keys: &[&str]) -> PolicyProblem {
    PolicyProblem::at_keys(table.into_iter().chain(keys.iter().copied()), String::new())
}

struct PathCheck<'a> {
    look: &'a dyn Fn(&Path) -> PathKind,
    found: Vec<PolicyProblem>,
}

impl PathCheck<'_> {
    /// Checks one path. Returns whether it is as expected.
    fn check(&mut self, path: &Path, wanted: ExpectedKind, place: PolicyProblem) -> bool {
        let shown = path.display();
        let message = match ((self.look)(path), wanted) {
            (PathKind::Missing, _) => format!("`{shown}` does not exist"),
            (PathKind::File | PathKind::Program | PathKind::Other, ExpectedKind::Folder) => {
                format!("`{shown}` is not a folder")
            }
            (PathKind::Folder, ExpectedKind::File | ExpectedKind::Program) => {
                format!("`{shown}` is a folder, not a file")
            }
            (PathKind::File, ExpectedKind::Program) => format!("`{shown}` is not executable"),
            _ => return true,
        };
        self.found.push(PolicyProblem { message, ..place });
        false
    }

    /// Checks the folders of a program that the host starts.
    fn check_sandbox(&mut self, program: &Program, workspace: &Path, table: [&str; 2], keys: [&str; 3]) {
        if program.cwd != workspace {
            self.check(&program.cwd, ExpectedKind::Folder, at_table(table, &["cwd"]));
        }
        let lists = [&program.read, &program.write, &program.execute];
        for (key, list) in keys.into_iter().zip(lists) {
            for (index, reach) in list.iter().enumerate().filter(|(_, reach)| reach.folder() != workspace) {
                self.check(reach.folder(), ExpectedKind::Anything, at_table(table, &[key]).in_line(index));
            }
        }
    }
}
