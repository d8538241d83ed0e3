//! Native modules: shared libraries that interpreters load. A module is a crate, and its place in the packages of its language.

use std::path::{Path, PathBuf};

/// The native module of a language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Module {
    Node,
    Python,
}

impl Module {
    /// The modules of a release.
    pub(crate) const ALL: [Self; 2] = [Self::Node, Self::Python];

    /// The package of cargo.
    pub(super) fn package(self) -> &'static str {
        match self {
            Self::Node => "toolbay-node",
            Self::Python => "toolbay-python",
        }
    }

    /// The file that cargo builds.
    pub(crate) fn library(self) -> String {
        format!("lib{}.so", self.package().replace('-', "_"))
    }

    /// Its place in a package.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Node => "toolbay.node",
            Self::Python => "toolbay/_native.abi3.so",
        }
    }
}

/// What a build for this machine made.
#[derive(Debug)]
pub(crate) struct BuiltFiles {
    pub(crate) program: PathBuf,
    pub(crate) modules: Vec<(Module, PathBuf)>,
    /// The folder of the plugins.
    pub(crate) plugins: PathBuf,
}

impl BuiltFiles {
    /// A program, with the modules that the same build of cargo put beside it.
    pub(crate) fn beside(program: &Path, plugins: &Path) -> Self {
        let module = |module: Module| (module, program.with_file_name(module.library()));
        Self {
            program: program.to_path_buf(),
            modules: Module::ALL.map(module).into(),
            plugins: plugins.to_path_buf(),
        }
    }

    /// The program and the modules.
    pub(crate) fn native_files(&self) -> impl Iterator<Item = &PathBuf> {
        self.modules.iter().map(|(_, module)| module).chain([&self.program])
    }
}
