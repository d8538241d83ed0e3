//! Installs the packages as a user without a network, a compiler or Rust does, uses the command and the library, and removes them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::bare_machine::BareMachine;
use super::launcher;
use super::stdio_server::StdioServer;
use crate::dist::{self, BuiltFiles, PackageFolder};
use crate::folder::emptied;
use crate::foreign::shell;
use crate::languages::blocks;
use crate::programs::printed;
use crate::{cargo, plugins};

/// A plugin with a tool that needs no grant, the text that it gets, and what its answer contains.
const PLUGIN: &str = "text.wasm";
const TOOL: &str = "text__word_count";
const TEXT: &str = "a b a";
const ANSWER: &str = r#""words":3"#;
/// What programs that embed the library print of their own tool.
const OWN_ANSWER: &str = "twice: 6";
/// Programs that embed the library.
pub(crate) const EMBED_IN_PYTHON: &str = "tests/dist/embed.py";
pub(crate) const EMBED_IN_NODE: &str = "tests/dist/embed.mjs";

/// Packages what the build made quickly, and checks every way to install it.
pub(crate) fn check(workspace: &Path) -> Result<()> {
    let folder = wasm::target_dir(workspace).join("arrive");
    let built = BuiltFiles::beside(&cargo::host(workspace), &plugins::folder(workspace));
    let files = stripped(&built, &folder.join("stripped"))?;
    let packages = dist::package(workspace, &files, dist::Packing::Quick, &folder.join("packages"))?;
    check_packages(workspace, &packages, &folder.join("machine"))?;
    // Copies of the program, which is large without optimisation.
    for copies in ["stripped", "packages", "machine"] {
        std::fs::remove_dir_all(folder.join(copies))?;
    }
    Ok(())
}

/// Copies what was built without symbols, which are a third of it. It is packaged, checksummed and copied many times.
fn stripped(built: &BuiltFiles, folder: &Path) -> Result<BuiltFiles> {
    emptied(folder)?;
    let files = BuiltFiles::beside(&folder.join("toolbay"), &built.plugins);
    for (from, to) in built.native_files().zip(files.native_files()) {
        shell(Command::new("strip").arg("-o").arg(to).arg(from))?;
    }
    Ok(files)
}

/// Checks every way to install packages.
pub(crate) fn check_packages(workspace: &Path, packages: &PackageFolder, folder: &Path) -> Result<()> {
    let machine = BareMachine::new(workspace, folder)?;
    let check = Check { workspace, machine: &machine, packages };
    let steps: [(&str, Step<'_>); 6] = [
        ("pip", Check::pip),
        ("pip --target", Check::pip_target),
        ("uv", Check::uv),
        ("uvx", Check::uvx),
        ("npm", Check::npm),
        ("install.sh", Check::script),
    ];
    for (name, step) in steps {
        let start = Instant::now();
        step(&check).with_context(|| format!("installed with {name}"))?;
        machine.check_clean().with_context(|| format!("installed with {name}"))?;
        println!("{name}: installed, used and removed in {:.1} s", start.elapsed().as_secs_f64());
    }
    Ok(())
}

/// One way to install.
type Step<'a> = fn(&Check<'a>) -> Result<()>;

/// The packages on a machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Check<'a> {
    pub(super) workspace: &'a Path,
    pub(super) machine: &'a BareMachine,
    pub(super) packages: &'a PackageFolder,
}

impl Check<'_> {
    fn pip(&self) -> Result<()> {
        let venv = self.venv("pip")?;
        self.pip_install(&venv, &[self.packages.wheel(), self.packages.plugins_wheel()])?;
        self.use_command(&venv.join("bin/toolbay"), &venv.join("bin/toolbay-plugins"), "wheel")?;
        let imported = "import toolbay_plugins; print(toolbay_plugins.DIRECTORY)";
        let directory = printed(self.machine.command(venv.join("bin/python")).args(["-c", imported]))?;
        ensure!(Path::new(directory.trim()).join(PLUGIN).exists(), "no plugins in {directory}");
        self.embed(self.machine.command(venv.join("bin/python")).arg(self.embed_in_python()))?;
        for program in shown_programs("python")? {
            printed(self.machine.command(venv.join("bin/python")).args(["-c", program]))?;
        }
        let mut remove = self.machine.command(venv.join("bin/python"));
        printed(remove.args(["-m", "pip", "uninstall", "--yes", "toolbay", "toolbay-plugins"]))?;
        check_gone(&venv)
    }

    fn pip_target(&self) -> Result<()> {
        let (venv, target) = (self.venv("pip")?, self.machine.work().join("target"));
        let mut install = self.machine.command(venv.join("bin/python"));
        install.args(["-m", "pip", "install", "--quiet", "--no-index", "--target"]).arg(&target);
        printed(install.arg(self.packages.wheel()).arg(self.packages.plugins_wheel()))?;
        // Commands of Python find their modules in the environment only, and a program needs none.
        self.check_version(&target.join("bin/toolbay"), "wheel")?;
        self.serve(
            &mut self.machine.command(target.join("bin/toolbay")),
            &target.join("toolbay_plugins/plugins"),
        )?;
        let mut python = self.machine.command(venv.join("bin/python"));
        self.embed(python.env("PYTHONPATH", &target).arg(self.embed_in_python()))?;
        Ok(std::fs::remove_dir_all(&target)?)
    }

    fn uv(&self) -> Result<()> {
        let venv = self.uv_venv("uv")?;
        self.uv_install(&venv, &[self.packages.wheel(), self.packages.plugins_wheel()])?;
        self.use_command(&venv.join("bin/toolbay"), &venv.join("bin/toolbay-plugins"), "wheel")?;
        self.embed(self.machine.command(venv.join("bin/python")).arg(self.embed_in_python()))?;
        let mut remove = self.machine.command("uv");
        printed(
            remove.args(["pip", "uninstall", "--quiet", "toolbay", "toolbay-plugins", "--python"]).arg(&venv),
        )?;
        check_gone(&venv)
    }

    fn uvx(&self) -> Result<()> {
        let directory = printed(self.uvx_command().arg("toolbay-plugins"))?;
        let mut serve = self.uvx_command();
        serve.arg("toolbay");
        self.serve(&mut serve, Path::new(directory.trim()))?;
        let mut run = self.machine.command("uv");
        run.args(["run", "--quiet", "--no-project"])
            .args(self.offline())
            .args(["--with", "toolbay", "python"]);
        self.embed(run.arg(self.embed_in_python()))
    }

    fn npm(&self) -> Result<()> {
        let prefix = self.machine.work().join("npm");
        self.npm_install(&prefix, &self.packages.npm())?;
        let bin = prefix.join("node_modules/.bin");
        self.use_command(&bin.join("toolbay"), &bin.join("toolbay-plugins"), "npm")?;
        let mut npx = self.machine.command("npx");
        let version = printed(npx.args(["--offline", "toolbay", "--version"]).current_dir(&prefix))?;
        ensure!(version.contains("npm"), "{version}");
        launcher::check(self.machine, &prefix)?;
        // Node looks for packages beside the program.
        let program = prefix.join("embed.mjs");
        std::fs::copy(self.workspace.join(EMBED_IN_NODE), &program)?;
        self.embed(self.machine.command("node").arg(&program))?;
        for shown in shown_programs("js")? {
            std::fs::write(&program, shown)?;
            printed(self.machine.command("node").arg(&program))?;
        }
        let mut remove = self.machine.command("npm");
        let names = ["toolbay", "@toolbay/plugins", &self.packages.npm_platform_name()];
        printed(
            remove.args(["uninstall", "--offline", "--ignore-scripts"]).args(names).current_dir(&prefix),
        )?;
        check_gone(&prefix.join("node_modules"))
    }

    fn script(&self) -> Result<()> {
        let prefix = self.machine.home().join(".local");
        let install = |url: &Path| {
            let mut install = self.machine.command("sh");
            install
                .arg(self.packages.file("install.sh"))
                .env("TOOLBAY_URL", format!("file://{}", url.display()));
            install
        };
        let other = self.machine.work().join("other");
        std::fs::create_dir(&other)?;
        std::fs::write(other.join(self.packages.tarball_name()), "something else")?;
        let refused = install(&other).output()?;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        ensure!(!refused.status.success() && said.contains("checksum"), "another archive: {said}");
        ensure!(!prefix.join("bin/toolbay").exists(), "another archive was installed");
        let folder = self.packages.folder();
        printed(&mut install(folder))?;
        // Again, in place of the first.
        printed(&mut install(folder))?;
        self.check_version(&prefix.join("bin/toolbay"), "tarball")?;
        let plugins = prefix.join("lib/toolbay/lib/toolbay/plugins");
        self.serve(&mut self.machine.command(prefix.join("bin/toolbay")), &plugins)?;
        let mut remove = self.machine.command("rm");
        printed(remove.arg("-r").arg(prefix.join("lib/toolbay")).arg(prefix.join("bin/toolbay")))?;
        for left in ["lib", "bin"] {
            std::fs::remove_dir(prefix.join(left)).with_context(|| format!("`{left}` is not empty"))?;
        }
        Ok(std::fs::remove_dir(prefix)?)
    }

    /// An environment with pip, made once.
    pub(super) fn venv(&self, name: &str) -> Result<PathBuf> {
        let venv = self.machine.work().join(name);
        if !venv.exists() {
            printed(self.machine.command("python3").args(["-m", "venv"]).arg(&venv))?;
        }
        Ok(venv)
    }

    /// An environment without pip.
    pub(super) fn uv_venv(&self, name: &str) -> Result<PathBuf> {
        let venv = self.machine.work().join(name);
        printed(self.machine.command("uv").args(["venv", "--quiet", "--clear", "--offline"]).arg(&venv))?;
        Ok(venv)
    }

    /// Installs into an environment, and returns the time.
    pub(super) fn pip_install(&self, venv: &Path, wheels: &[PathBuf]) -> Result<Duration> {
        let mut install = self.machine.command(venv.join("bin/python"));
        timed(install.args(["-m", "pip", "install", "--quiet", "--no-index"]).args(wheels))
    }

    /// Installs into an environment, and returns the time.
    pub(super) fn uv_install(&self, venv: &Path, wheels: &[PathBuf]) -> Result<Duration> {
        let mut install = self.machine.command("uv");
        install.args(["pip", "install", "--quiet", "--offline", "--no-index", "--python"]).arg(venv);
        timed(install.args(wheels))
    }

    /// `uvx` with the packages.
    pub(super) fn uvx_command(&self) -> Command {
        let mut command = self.machine.command("uvx");
        command.arg("--quiet").args(self.offline());
        command
    }

    /// Options of uv that take packages from the folder only.
    fn offline(&self) -> [&OsStr; 4] {
        let [offline, no_index, find] = ["--offline", "--no-index", "--find-links"].map(OsStr::new);
        [offline, no_index, find, self.packages.folder().as_os_str()]
    }

    /// Installs packages into an empty folder, and returns the time.
    pub(super) fn npm_install(&self, prefix: &Path, packages: &[PathBuf]) -> Result<Duration> {
        emptied(prefix)?;
        let mut install = self.machine.command("npm");
        install.args([
            "install",
            "--offline",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
        ]);
        timed(install.args(packages).current_dir(prefix))
    }

    /// Asks for the version, serves and calls a tool.
    fn use_command(&self, program: &Path, plugins: &Path, origin: &str) -> Result<()> {
        self.check_version(program, origin)?;
        let directory = printed(&mut self.machine.command(plugins))?;
        self.serve(&mut self.machine.command(program), Path::new(directory.trim()))
    }

    /// The version names the package.
    fn check_version(&self, program: &Path, origin: &str) -> Result<()> {
        let version = printed(self.machine.command(program).arg("--version"))?;
        let named = version.lines().find_map(|line| line.strip_prefix("origin ")).map(str::trim);
        ensure!(named == Some(origin), "`toolbay --version` names the origin {named:?}, not {origin}");
        Ok(())
    }

    /// Serves a plugin of a directory and calls a tool. To compile the others takes long and shows nothing more.
    fn serve(&self, command: &mut Command, plugins: &Path) -> Result<()> {
        let served = self.machine.work().join("plugins");
        emptied(&served)?;
        std::fs::copy(plugins.join(PLUGIN), served.join(PLUGIN))
            .with_context(|| format!("no plugins in `{}`", plugins.display()))?;
        let mut server = StdioServer::start(command.arg("serve").arg(&served).args(self.own_state()))?;
        // A call waits for its plugin, and a list only for some seconds.
        let answer = server.call(TOOL, &json!({"text": TEXT}))?;
        ensure!(answer.contains(ANSWER), "the server answers {answer}");
        let tools = server.tools()?;
        ensure!(tools.iter().any(|tool| tool == TOOL), "the server lists {tools:?}");
        let status = server.end()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }

    /// Runs a program that opens a host with the plugin that was served, and calls it and a tool of its own.
    fn embed(&self, program: &mut Command) -> Result<()> {
        let [_, state] = self.own_state();
        check_embedded(program.arg(self.machine.work().join("plugins")).arg(state)).map(drop)
    }

    fn embed_in_python(&self) -> PathBuf {
        self.workspace.join(EMBED_IN_PYTHON)
    }

    /// Options that keep what belongs to the user out of the home.
    pub(super) fn own_state(&self) -> [PathBuf; 2] {
        ["--state-dir".into(), self.machine.work().join("state")]
    }
}

/// Runs a program that embeds the library, and returns what it prints.
pub(crate) fn check_embedded(program: &mut Command) -> Result<String> {
    let said = printed(program)?;
    ensure!(said.contains(ANSWER) && said.contains(OWN_ANSWER), "the program prints {said}");
    Ok(said)
}

/// The programs in a language on the page of the packages.
fn shown_programs(language: &str) -> Result<Vec<&'static str>> {
    let programs = blocks(dist::README, language);
    ensure!(!programs.is_empty(), "the page of the packages shows no program in `{language}`");
    Ok(programs)
}

/// Runs a command and returns its time.
pub(super) fn timed(command: &mut Command) -> Result<Duration> {
    let start = Instant::now();
    printed(command)?;
    Ok(start.elapsed())
}

/// No file below a folder has our name in its path. npm leaves the folder of the scope, without files.
fn check_gone(folder: &Path) -> Result<()> {
    let mut folders = vec![folder.to_path_buf()];
    while let Some(current) = folders.pop() {
        for entry in std::fs::read_dir(&current)? {
            let path = entry?.path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
                continue;
            }
            let is_ours = path.strip_prefix(folder)?.to_string_lossy().contains("toolbay");
            ensure!(!is_ours, "uninstalling leaves `{}`", path.display());
        }
    }
    Ok(())
}
