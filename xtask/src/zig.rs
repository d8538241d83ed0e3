//! Zig's C compiler, which a Python package contains: it compiles the few C files of dependencies for every system.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::foreign::environment;

/// The Python package.
const PACKAGE: &str = "ziglang==0.17.1\n";

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

    /// A C compiler for a target, by Zig's name. Zig checks undefined behaviour with a library that is not linked, unless it
    /// optimises.
    pub(crate) fn compiler(&self, target: &str) -> Result<PathBuf> {
        self.wrapper(&format!("cc-{target}"), &format!("cc -target {target} -fno-sanitize=undefined \"$@\""))
    }

    /// An archiver.
    pub(crate) fn archiver(&self) -> Result<PathBuf> {
        self.wrapper("ar", "ar \"$@\"")
    }

    /// A script that runs a program of Zig, without the options that name the target in other words.
    fn wrapper(&self, name: &str, line: &str) -> Result<PathBuf> {
        let cache = self.folder.join("zig");
        let lines = [
            "#!/bin/sh\nlast=".to_owned(),
            "for arg do".to_owned(),
            "    shift".to_owned(),
            "    case \"$last$arg\" in".to_owned(),
            "        --target=* | -mmacosx-version-min=* | -arch | -arch\\ *) ;;".to_owned(),
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

/// Writes an executable file. An unchanged one does not make cargo build again.
pub(crate) fn write_script(file: &Path, script: &str) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    if fs::read_to_string(file).ok().as_deref() != Some(script) {
        fs::write(file, script)?;
        fs::set_permissions(file, fs::Permissions::from_mode(0o755))?;
    }
    Ok(file.to_path_buf())
}
