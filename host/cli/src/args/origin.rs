//! The package that a program came in. Each package has the same program, so a file beside it says which package it is.

use std::path::Path;

/// The file, from the folder that has the folder of the program. `cargo xtask dist` writes it.
const FILE: &str = "share/toolbay/origin";

/// A kind of package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Wheel,
    Npm,
    Deb,
    Tarball,
    Image,
}

impl Origin {
    const ALL: [Self; 5] = [Self::Wheel, Self::Npm, Self::Deb, Self::Tarball, Self::Image];

    /// The package of this program; `None` if it came in none.
    pub(super) fn of_this_program() -> Option<Self> {
        Self::of_program(&std::env::current_exe().ok()?)
    }

    fn of_program(program: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(program.parent()?.parent()?.join(FILE)).ok()?;
        Self::ALL.into_iter().find(|origin| origin.as_str() == text.trim())
    }

    /// The word for it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Wheel => "wheel",
            Self::Npm => "npm",
            Self::Deb => "deb",
            Self::Tarball => "tarball",
            Self::Image => "image",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_beside_the_program_names_its_package() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("bin/toolbay");
        assert_eq!(Origin::of_program(&program), None);
        let file = folder.path().join(FILE);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        for origin in Origin::ALL {
            std::fs::write(&file, format!("{}\n", origin.as_str())).unwrap();
            assert_eq!(Origin::of_program(&program), Some(origin));
        }
        std::fs::write(&file, "something else").unwrap();
        assert_eq!(Origin::of_program(&program), None);
    }
}
