//! Files and folders that a policy names and that are not there, or are of another kind.

use std::path::Path;

use super::super::problem::{Problem, Step};
use super::super::{Place, Policy};
use super::PathKind;
use crate::capability::program::Program;
use crate::capability::reach::Reach;
use crate::capability::secret::SecretSource;
use crate::mcp_server;

/// What a path is to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Program,
    File,
    Folder,
    Anything,
}

/// All paths of a policy that are not what they should be.
pub(super) fn missing(policy: &Policy, look: &dyn Fn(&Path) -> PathKind) -> Vec<Problem> {
    let mut found = Paths { look, found: Vec::new() };
    let workspace = policy.workspace();
    let is_there = found.check(workspace, Wanted::Folder, Problem::at(["workspace"], String::new()));
    for (name, program) in policy.programs() {
        let table = ["programs", name];
        found.check(&program.path, Wanted::Program, at(table, &["path"]));
        found.sandbox(program, workspace, table, ["read", "write", "execute"]);
    }
    for (name, secret) in policy.secrets() {
        if let SecretSource::File(file) = &secret.from {
            found.check(file, Wanted::File, at(["secrets", name], &["from"]));
        }
    }
    for server in policy.mcp_servers() {
        let mcp_server::Place::Child(child) = &server.place else { continue };
        let (table, program) = (["mcp", server.name.as_str()], &child.program);
        let mut command = at(table, &["command"]);
        command.path.push(Step::Index(0));
        found.check(&program.path, Wanted::Program, command);
        found.sandbox(program, workspace, table, ["fs_read", "fs_write", "execute"]);
    }
    for service in policy.openapi() {
        if let Place::File(file) = &service.document {
            found.check(file, Wanted::File, at(["openapi", service.name.as_str()], &["document"]));
        }
    }
    if let Some(tokens) = &policy.serve().tokens {
        found.check(tokens, Wanted::File, Problem::at(["serve", "tokens"], String::new()));
    }
    if let Some(keys) = policy.serve().oauth.as_ref().and_then(|oauth| oauth.file()) {
        found.check(keys, Wanted::File, Problem::at(["serve", "oauth", "jwks"], String::new()));
    }
    for (table, rules) in policy.tables() {
        for (key, list) in [("fs_read", &rules.fs_read), ("fs_write", &rules.fs_write)] {
            let list = list.as_deref().unwrap_or_default();
            // What is missing with the workspace is one mistake.
            let in_reach = |reach: &Reach| is_there || !reach.folder().starts_with(workspace);
            for (index, reach) in list.iter().enumerate().filter(|(_, reach)| in_reach(reach)) {
                let keys = table.iter().copied().chain([key]);
                let place = Problem::at(keys, String::new()).in_line(index);
                found.check(reach.folder(), Wanted::Anything, place);
            }
        }
    }
    found.found
}

fn at(table: [&str; 2], keys: &[&str]) -> Problem {
    Problem::at(table.into_iter().chain(keys.iter().copied()), String::new())
}

struct Paths<'a> {
    look: &'a dyn Fn(&Path) -> PathKind,
    found: Vec<Problem>,
}

impl Paths<'_> {
    /// Looks at one path; returns whether it is as it should be.
    fn check(&mut self, path: &Path, wanted: Wanted, place: Problem) -> bool {
        let shown = path.display();
        let message = match ((self.look)(path), wanted) {
            (PathKind::Missing, _) => format!("`{shown}` does not exist"),
            (PathKind::File | PathKind::Program | PathKind::Other, Wanted::Folder) => {
                format!("`{shown}` is not a folder")
            }
            (PathKind::Folder, Wanted::File | Wanted::Program) => {
                format!("`{shown}` is a folder, not a file")
            }
            (PathKind::File, Wanted::Program) => format!("`{shown}` is not executable"),
            _ => return true,
        };
        self.found.push(Problem { message, ..place });
        false
    }

    /// The folders of a program that is started.
    fn sandbox(&mut self, program: &Program, workspace: &Path, table: [&str; 2], keys: [&str; 3]) {
        if program.cwd != workspace {
            self.check(&program.cwd, Wanted::Folder, at(table, &["cwd"]));
        }
        let lists = [&program.read, &program.write, &program.execute];
        for (key, list) in keys.into_iter().zip(lists) {
            for (index, reach) in list.iter().enumerate().filter(|(_, reach)| reach.folder() != workspace) {
                self.check(reach.folder(), Wanted::Anything, at(table, &[key]).in_line(index));
            }
        }
    }
}
