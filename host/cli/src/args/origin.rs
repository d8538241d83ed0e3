//! The package that a program came in. Each package has the same program, so the files beside it say which package it is.

use std::path::Path;

/// The file that names the package, from the folder that has the folder of the program. `cargo xtask dist` writes it.
const FILE: &str = "share/toolbay/origin";
/// What Cargo calls a version before the final one, and what Python calls it (PEP 440).
const BEFORE_FINAL: [(&str, &str); 3] = [("-alpha.", "a"), ("-beta.", "b"), ("-rc.", "rc")];

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
        let prefix = program.parent()?.parent()?;
        if let Ok(text) = std::fs::read_to_string(prefix.join(FILE)) {
            return Self::ALL.into_iter().find(|origin| origin.as_str() == text.trim());
        }
        is_of_wheel(prefix).then_some(Self::Wheel)
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

/// Whether an environment of Python lists the program. Installers would leave the folder of a file beside it when they remove a
/// wheel, but never this one.
fn is_of_wheel(prefix: &Path) -> bool {
    let version =
        BEFORE_FINAL.iter().fold(env!("CARGO_PKG_VERSION").to_owned(), |version, (cargo, python)| {
            version.replace(cargo, python)
        });
    let list = format!("toolbay-{version}.dist-info/RECORD");
    // `pip install --target` has one folder for everything, an environment one for each Python.
    let pythons = std::fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten();
    let modules =
        pythons.flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.path().join(name)));
    std::iter::once(prefix.to_path_buf()).chain(modules).any(|folder| folder.join(&list).is_file())
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

    #[test]
    fn an_environment_of_python_lists_the_program_of_a_wheel() {
        for modules in ["lib/python3.11/site-packages", "lib/python3/dist-packages", "."] {
            let folder = tempfile::tempdir().unwrap();
            let list = format!("toolbay-{}.dist-info/RECORD", env!("CARGO_PKG_VERSION"));
            let list = folder.path().join(modules).join(list);
            std::fs::create_dir_all(list.parent().unwrap()).unwrap();
            std::fs::write(list, "").unwrap();
            assert_eq!(Origin::of_program(&folder.path().join("bin/toolbay")), Some(Origin::Wheel));
        }
    }
}
