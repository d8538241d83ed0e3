//! Programs that a test implements.

use std::collections::BTreeMap;
use std::fmt;

use crate::bindings::imports::toolbay::plugin::process::{Command, Completed, ProcessError};

type FakeProcessReply = Box<dyn Fn(&Command) -> Completed>;

/// The programs of a fake host.
#[derive(Default)]
pub(crate) struct FakeProcess {
    programs: BTreeMap<String, FakeProcessReply>,
    commands: Vec<Command>,
}

impl FakeProcess {
    pub(crate) fn add(&mut self, program: &str, answer: FakeProcessReply) {
        self.programs.insert(program.to_owned(), answer);
    }

    pub(crate) fn commands(&self) -> Vec<Command> {
        self.commands.clone()
    }

    pub(crate) fn run(&mut self, command: &Command) -> Result<Completed, ProcessError> {
        self.commands.push(command.clone());
        match self.programs.get(&command.program) {
            Some(answer) => Ok(answer(command)),
            None => Err(ProcessError::Denied(format!("the fake host has no program `{}`", command.program))),
        }
    }
}

impl fmt::Debug for FakeProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeProcess")
            .field("programs", &self.programs.keys().collect::<Vec<_>>())
            .field("commands", &self.commands)
            .finish()
    }
}
