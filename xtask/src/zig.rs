//! Zig's C compiler, which a Python package contains: it compiles the few C files of dependencies for every system, and links
//! native modules for an old glibc or for musl.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::foreign::environment;

/// The Python package.
const PACKAGE: &str = "ziglang==0.17.1\n";

/// Options that name the target in other words, as cases of a shell.
const TARGET_OPTIONS: &str = r"--target=* | -mmacosx-version-min=* | -arch | -arch\ *) ;;";
/// What Zig does not take of the options with which rustc links: `cargo-zigbuild` 0.24.1 knows them.
///
/// - Zig has its own unwinder, which it links statically, and no libgcc.
/// - It chooses its linker, and optimises without being asked.
/// - `cargo auditable` keeps its list by `--undefined`.
const LINK_OPTIONS: &str = r#"-lgcc_s) set -- "$@" -lunwind ;;
        -Wl,--undefined=*) set -- "$@" "-Wl,-u,${arg#*=}" ;;
        -fuse-ld=* | -B* | -Wl,-O1 | -Wl,--no-undefined-version | -Wl,-znostart-stop-gc) ;;
        -Wl,--fix-cortex-a53-843419) ;;"#;

/// The installed compiler.
pub(crate) struct Zig {
    /// The Python with the package.
    python: PathBuf,
    /// The folder of scripts, which make of it what cargo takes.
    folder: PathBuf,
}

impl Zig {
    /// Installs it, with its scripts in this folder.
    pub(crate) fn install(workspace: &Path, folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let python = environment(&wasm::target_dir(workspace).join("venv-zig"), PACKAGE)?;
        Ok(Self { python, folder: folder.to_path_buf() })
    }

    /// A C compiler for a target, by Zig's name.
    pub(crate) fn compiler(&self, target: &str) -> Result<PathBuf> {
        self.wrapper(&format!("cc-{target}"), TARGET_OPTIONS, &driver(target))
    }

    /// A linker for shared libraries of a target, by Zig's name. Returns its name in the folder `bin` beside the scripts: cargo
    /// hashes the flags of rustc into every symbol, and a path would differ between machines.
    pub(crate) fn linker(&self, target: &str) -> Result<String> {
        let name = format!("zig-link-{target}");
        fs::create_dir_all(self.folder.join("bin"))?;
        self.wrapper(&format!("bin/{name}"), LINK_OPTIONS, &driver(target))?;
        Ok(name)
    }

    /// An archiver.
    pub(crate) fn archiver(&self) -> Result<PathBuf> {
        self.wrapper("ar", TARGET_OPTIONS, "ar \"$@\"")
    }

    /// A script that runs a program of Zig with what these cases leave of the options.
    fn wrapper(&self, name: &str, cases: &str, line: &str) -> Result<PathBuf> {
        let cache = self.folder.join("zig");
        let lines = [
            "#!/bin/sh\nlast=".to_owned(),
            "for arg do".to_owned(),
            "    shift".to_owned(),
            "    case \"$last$arg\" in".to_owned(),
            format!("        {cases}"),
            "        *) set -- \"$@\" \"$arg\" ;;".to_owned(),
            "    esac".to_owned(),
            "    last=; [ \"$arg\" = -arch ] && last='-arch '".to_owned(),
            "done".to_owned(),
            format!("export ZIG_GLOBAL_CACHE_DIR='{0}' ZIG_LOCAL_CACHE_DIR='{0}'", cache.display()),
            format!("exec '{}' -m ziglang {line}\n", self.python.display()),
        ];
        write_script(&self.folder.join(name), &lines.join("\n"))
    }
}

/// Zig's compiler and linker for a target. It checks undefined behaviour with a library that is not linked, unless it optimises.
fn driver(target: &str) -> String {
    format!("cc -target {target} -fno-sanitize=undefined \"$@\"")
}

/// Writes an executable file. An unchanged one does not make cargo build again.
pub(crate) fn write_script(file: &Path, script: &str) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    if fs::read_to_string(file).ok().as_deref() != Some(script) {
        fs::write(file, script)?;
    }
    // Also of an unchanged one, which an interrupted run may have left without.
    fs::set_permissions(file, fs::Permissions::from_mode(0o755))?;
    Ok(file.to_path_buf())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn zig_gets_the_options_that_it_knows() {
        let folder = tempfile::tempdir().unwrap();
        // It prints the arguments of Python.
        let zig = Zig { python: PathBuf::from("echo"), folder: folder.path().to_path_buf() };
        let printed = |script: PathBuf, args: &[&str]| {
            let output = Command::new("sh").arg(script).args(args).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let linker = folder.path().join("bin").join(zig.linker("T").unwrap());
        let said = printed(linker, &["-shared", "-lgcc_s", "-Wl,--undefined=A", "-fuse-ld=lld", "a b.o"]);
        assert!(said.ends_with("-shared -lunwind -Wl,-u,A a b.o\n"), "{said}");
        let said = printed(zig.compiler("T").unwrap(), &["-arch", "arm64", "--target=U", "-c", "a.c"]);
        assert!(said.contains("-target T ") && said.ends_with(" -c a.c\n"), "{said}");
    }
}
