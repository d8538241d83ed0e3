//! `languages`: tests the SDKs for JavaScript, TypeScript, Python and C: their own tests, a plugin in each for the
//! contract suite (`tests/contract`), and the sample plugins.
//!
//! The lists in `tests/contract` fix the versions of the toolchains. A component is built again when one of its sources
//! changes.

use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::cargo;
use crate::folder::{emptied, read_tutorial};
use crate::foreign::{NodeRuntime, python_with, shell};

/// A sample plugin: its sources and its name.
struct Component {
    name: &'static str,
    /// Relative to the workspace.
    source: &'static str,
    language: Language,
}

#[derive(Clone, Copy)]
enum Language {
    JavaScript,
    Python,
    C,
}

const COMPONENTS: [Component; 3] = [
    Component { name: "tables", source: "sdk/js/example/tables.ts", language: Language::JavaScript },
    Component { name: "numeric", source: "sdk/python/example/numeric.py", language: Language::Python },
    Component { name: "bytes", source: "sdk/c/example/bytes.c", language: Language::C },
];

/// The folder of new plugins. Paths of authors may have spaces and letters of all languages.
const NEW: &str = "größe 1";
/// The `target` of the new plugin in Python, and the folder of its interpreter.
const KEPT: &str = "greets-python";
const INTERPRETER: &str = "greets-python/python";

/// The plugins of the contract suite: name, source, and the files of the project beside it.
const CONTRACTS: [(&str, &str, Language, &[&str]); 4] = [
    ("contract_js", "plugin.js", Language::JavaScript, &["package.json"]),
    ("contract_ts", "plugin.ts", Language::JavaScript, &["package.json"]),
    ("contract_python", "plugin.py", Language::Python, &["pyproject.toml"]),
    ("contract_c", "plugin.c", Language::C, &[]),
];

/// The installed toolchains with copies of the SDKs.
struct Toolchains {
    workspace: PathBuf,
    /// The folder of components and copies.
    folder: PathBuf,
    python: PathBuf,
    node: NodeRuntime,
}

/// Builds and tests all three SDKs.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let toolchains = Toolchains::install(workspace)?;
    toolchains.test_javascript()?;
    toolchains.test_python()?;
    toolchains.try_new()?;
    for component in &COMPONENTS {
        toolchains.sample(component)?;
    }
    for (name, source, language, files) in CONTRACTS {
        toolchains.contract(name, source, language, files)?;
    }
    toolchains.check_pages()?;
    shell(Command::new(cargo::example(workspace, "contract")).arg(&toolchains.folder))
}

/// Installs the toolchains of all languages: Python with that of C, and Node.
pub(crate) fn toolchains(workspace: &Path) -> Result<(PathBuf, NodeRuntime)> {
    let lists = workspace.join("tests/contract");
    let python = python_with(&wasm::target_dir(workspace).join("venv-languages"), &lists)?;
    Ok((python, NodeRuntime::with(workspace, "npm-languages", &lists)?))
}

impl Toolchains {
    fn install(workspace: &Path) -> Result<Self> {
        let (python, node) = toolchains(workspace)?;
        let folder = wasm::target_dir(workspace).join("languages");
        let toolchains = Self { workspace: workspace.to_path_buf(), folder, python, node };
        fs::create_dir_all(&toolchains.folder)?;
        toolchains.place_javascript()?;
        Ok(toolchains)
    }

    /// Copies the SDK and its example beside `node_modules`, where Node finds packages.
    fn place_javascript(&self) -> Result<()> {
        let folder = self.node.folder();
        replace(&self.workspace.join("sdk/js"), &folder.join("sdk"))?;
        replace(&self.workspace.join("sdk/js/example"), &folder.join("example"))?;
        let scope = folder.join("node_modules/@toolbay");
        fs::create_dir_all(&scope)?;
        // npm links a package in a folder too, and Node resolves packages from the real path.
        let link = scope.join("sdk");
        if fs::symlink_metadata(&link).is_err() {
            std::os::unix::fs::symlink(folder.join("sdk"), &link)?;
        }
        // The plugin of the suite in JavaScript is the one in TypeScript without its types.
        replace(&self.workspace.join("tests/contract/plugin"), &folder.join("contract"))?;
        let plugin = folder.join("contract/plugin.ts");
        let mut strip = self.node.run("esbuild/bin/esbuild");
        strip.arg(&plugin).args(["--target=es2023", "--log-level=warning"]);
        shell(strip.arg(format!("--outfile={}", plugin.with_extension("js").display())))?;
        let config = r#"{"extends": "@toolbay/sdk/tsconfig.json", "exclude": ["**/*.test.ts"],
            "include": ["contract/plugin.ts", "example/*.ts", "sdk/*.d.ts", "sdk/test/types.ts"]}"#;
        Ok(fs::write(folder.join("tsconfig.json"), config)?)
    }

    fn test_javascript(&self) -> Result<()> {
        let folder = self.node.folder();
        shell(self.node.run("typescript/bin/tsc").arg("--project").arg(folder.join("tsconfig.json")))?;
        // Without names, the SDK's script finds the tests.
        for (part, named) in [("sdk", files(&folder.join("sdk/test"), ".test.js")?), ("example", Vec::new())]
        {
            let mut tests = self.node.command();
            tests.arg(folder.join("sdk/run-tests.mjs")).arg("--test-reporter=dot").args(named);
            shell(tests.current_dir(folder.join(part)))?;
        }
        Ok(())
    }

    fn test_python(&self) -> Result<()> {
        for folder in ["sdk/python/tests", "sdk/python/example", "sdk/c/tests"]
            .map(|folder| self.workspace.join(folder))
        {
            let mut run = self.python();
            run.args(["-m", "unittest", "discover", "--quiet", "--start-directory"]).arg(&folder);
            shell(run.arg("--top-level-directory").arg(&folder))?;
        }
        Ok(())
    }

    /// A Python command that finds the SDK and writes no bytecode beside the sources.
    fn python(&self) -> Command {
        let mut command = Command::new(&self.python);
        command.env("PYTHONPATH", self.workspace.join("sdk/python")).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("ZIG_GLOBAL_CACHE_DIR", self.folder.join("zig"));
        command.current_dir(&self.folder);
        command
    }

    /// Builds a component unless its sources are unchanged.
    fn unless_built(
        &self,
        built: &Path,
        sources: &Path,
        language: Language,
        build: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let stamp = built.with_extension("made-of");
        let made_of = self.digest(sources, language)?;
        if built.is_file() && fs::read_to_string(&stamp).ok().as_deref() == Some(&made_of) {
            return Ok(());
        }
        // Written last: a component without it may be incomplete.
        drop(fs::remove_file(&stamp));
        build()?;
        Ok(fs::write(stamp, made_of)?)
    }

    /// Builds a sample plugin. That in Python becomes a development build with the interpreter of a new plugin.
    fn sample(&self, Component { name, source, language }: &Component) -> Result<()> {
        let built = self.folder.join(name).with_extension("wasm");
        let of = self.workspace.join(source);
        self.unless_built(&built, of.parent().unwrap_or(&of), *language, || {
            let mut build = self.build_of(*language, &self.copy(&of));
            if let Language::Python = language {
                build.env("PYTHONPATH", self.folder.join(NEW).join("greets-python/vendor"));
                build.arg("--dev").arg(self.folder.join(INTERPRETER));
            }
            shell(build.arg("-o").arg(&built))
        })
    }

    /// The copy of a sample's source beside `node_modules`, or the source itself.
    fn copy(&self, source: &Path) -> PathBuf {
        let copy =
            self.node.folder().join("example").join(source.file_name().unwrap_or(OsStr::new("plugin.js")));
        if copy.is_file() { copy } else { source.to_path_buf() }
    }

    /// Builds the release of a plugin of the contract suite, in a project that links to the SDK and the toolchain.
    fn contract(&self, name: &str, source: &str, language: Language, files: &[&str]) -> Result<()> {
        let built = self.folder.join(name).with_extension("wasm");
        let sources = self.node.folder().join("contract");
        self.unless_built(&built, &sources, language, || {
            let project = self.folder.join("projects").join(name);
            emptied(&project)?;
            fs::create_dir(project.join("vendor"))?;
            for file in [source, "offers.json", "pixel.png"].iter().chain(files) {
                fs::copy(sources.join(file), project.join(file))?;
            }
            let environment = (wasm::target_dir(&self.workspace).join("venv-languages"), ".venv");
            let links = match language {
                Language::JavaScript => vec![(self.node.folder().join("node_modules"), "node_modules")],
                Language::Python => {
                    vec![environment, (self.workspace.join("sdk/python/toolbay_sdk"), "vendor/toolbay_sdk")]
                }
                Language::C => vec![environment, (self.workspace.join("sdk/c"), "vendor/toolbay")],
            };
            for (from, link) in links {
                std::os::unix::fs::symlink(from, project.join(link))?;
            }
            let folder = project.to_string_lossy();
            let said = self.toolbay(&self.folder, &["build", &folder, "-r", "--no-install", "--json"])?;
            let said: serde_json::Value = serde_json::from_str(&said)?;
            let file = said.get("file").and_then(serde_json::Value::as_str);
            fs::copy(file.context("`toolbay build` named no file")?, &built)?;
            Ok(())
        })
    }

    fn build_of(&self, language: Language, source: &Path) -> Command {
        let mut command = match language {
            Language::JavaScript => self.node.command(),
            Language::Python | Language::C => self.python(),
        };
        match language {
            Language::JavaScript => command.arg(self.node.folder().join("sdk/build.mjs")),
            Language::Python => command.args(["-m", "toolbay_sdk.build"]),
            Language::C => command.arg(self.workspace.join("sdk/c/build.py")),
        };
        command.arg(source);
        command
    }

    /// Checks each code block of the language tutorials, which is a plugin. JavaScript and C are built. Python is only run, which
    /// saves 15 s and misses nothing but the errors of componentize-py.
    fn check_pages(&self) -> Result<()> {
        const PAGES: [(&str, &str, Language); 3] = [
            ("javascript", "js", Language::JavaScript),
            ("python", "python", Language::Python),
            ("c", "c", Language::C),
        ];
        for (page, fence, language) in PAGES {
            let text = read_tutorial(&self.workspace, page)?;
            let blocks = blocks(&text, fence);
            ensure!(!blocks.is_empty(), "the tutorial `{page}` shows no code");
            for (number, block) in blocks.iter().enumerate() {
                let source = self.node.folder().join(format!("page_{page}_{number}")).with_extension(fence);
                fs::write(&source, block)?;
                self.check_block(language, &source)?;
            }
        }
        Ok(())
    }

    fn check_block(&self, language: Language, source: &Path) -> Result<()> {
        const RUN: &str = "import runpy, sys; runpy.run_path(sys.argv[1]); \
                           from toolbay_sdk._tool import PLUGIN; assert PLUGIN.tools";
        match language {
            Language::Python => shell(self.python().args(["-c", RUN]).arg(source)),
            Language::JavaScript | Language::C => {
                let built = self.folder.join("page.component");
                shell(self.build_of(language, source).arg("-o").arg(built))
            }
        }
    }

    /// Types the commands of an author, with network access for `npm install` and the installed toolchains. The tutorials do so
    /// in JavaScript and C.
    fn try_new(&self) -> Result<()> {
        let folder = self.folder.join(NEW);
        emptied(&folder)?;
        fs::write(folder.join("toolbay.toml"), "version = 1\n")?;
        for (lang, named) in [("ts", "greets-ts"), ("python", "greets-python")] {
            self.toolbay(&folder, &["new", named, "--lang", lang])?;
            if lang == "ts" {
                let mut install = self.node.npm();
                install.args(["install", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund"]);
                shell(install.args(["--loglevel", "error"]).current_dir(folder.join(named)))?;
            } else {
                let environment = wasm::target_dir(&self.workspace).join("venv-languages");
                std::os::unix::fs::symlink(environment, folder.join(named).join(".venv"))?;
                // The interpreter of an earlier run has a digest of what it is made of.
                let kept = self.folder.join(KEPT);
                fs::create_dir_all(&kept)?;
                std::os::unix::fs::symlink(kept, folder.join(named).join("target"))?;
            }
            self.toolbay(&folder, &["build", named])?;
            let call = format!("{named}__hello");
            let said = self.toolbay(&folder, &["call", &call, r#"{"name": "world", "marks": 2}"#])?;
            ensure!(said == "Hello, world!!\n", "`{call}` said {said}");
            if lang == "python" {
                self.edit_python(&folder, named)?;
            }
            self.toolbay(&folder, &["test", named])?;
        }
        Ok(())
    }

    /// Changes a message, imports more of the standard library, and builds again, which must not build the interpreter
    /// again.
    fn edit_python(&self, folder: &Path, named: &str) -> Result<()> {
        let interpreter = self.folder.join(INTERPRETER).join("interpreter.wasm");
        let built = fs::metadata(&interpreter)?.modified()?;
        let source = folder.join(named).join("plugin.py");
        let text = fs::read_to_string(&source)?;
        fs::write(&source, format!("import graphlib\n{}", text.replace("f\"Hello", "f\"Bye")))?;
        self.toolbay(folder, &["build", named])?;
        let said = self.toolbay(folder, &["call", &format!("{named}__hello"), r#"{"name": "world"}"#])?;
        ensure!(said == "Bye, world!\n", "the changed plugin said {said}");
        ensure!(fs::metadata(&interpreter)?.modified()? == built, "the interpreter was built again");
        Ok(fs::write(&source, text)?)
    }

    /// Runs the built command and returns its stdout.
    fn toolbay(&self, folder: &Path, args: &[&str]) -> Result<String> {
        println!("    toolbay {}", args.join(" "));
        let mut path = vec![self.node.bin()];
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let output = Command::new(cargo::host(&self.workspace))
            .args(args)
            .current_dir(folder)
            .env("PATH", std::env::join_paths(path)?)
            .env("TOOLBAY_CONFIG", folder.join("toolbay.toml"))
            .env("TOOLBAY_PLUGINS", folder.join("plugins"))
            .env("TOOLBAY_STATE", folder.join("state"))
            .env("TOOLBAY_CACHE", wasm::target_dir(&self.workspace).join("test-cache"))
            .env("ZIG_GLOBAL_CACHE_DIR", self.folder.join("zig"))
            .stderr(std::process::Stdio::inherit())
            .output()
            .context("cannot run the built `toolbay`")?;
        ensure!(output.status.success(), "it ended with {}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    }

    /// A digest of everything that a component depends on: sources, SDK, contract, versions of the toolchains.
    fn digest(&self, sources: &Path, language: Language) -> Result<String> {
        let sdk = match language {
            Language::JavaScript => "sdk/js",
            Language::Python => "sdk/python/toolbay_sdk",
            Language::C => "sdk/c",
        };
        let mut all = Vec::new();
        for path in [
            sources.to_path_buf(),
            self.workspace.join(sdk),
            self.workspace.join("tests/contract/requirements.txt"),
            self.workspace.join("tests/contract/package-lock.json"),
            self.workspace.join("sdk/rust-syntax/src/offers.rs"),
        ] {
            collect(&path, &mut all)?;
        }
        all.sort();
        let mut digest = DefaultHasher::new();
        for file in all {
            let bytes = fs::read(&file).with_context(|| format!("cannot read `{}`", file.display()))?;
            (file, bytes).hash(&mut digest);
        }
        Ok(format!("{:016x}", digest.finish()))
    }
}

/// The fenced blocks of a page in one language.
pub(crate) fn blocks<'a>(page: &'a str, fence: &str) -> Vec<&'a str> {
    let begins = format!("\n```{fence}\n");
    page.split(begins.as_str()).skip(1).filter_map(|rest| rest.split("\n```").next()).collect()
}

/// Files below a path, without Python bytecode.
fn collect(path: &Path, all: &mut Vec<PathBuf>) -> Result<()> {
    if !path.is_dir() {
        all.push(path.to_path_buf());
        return Ok(());
    }
    for entry in fs::read_dir(path).with_context(|| format!("cannot read `{}`", path.display()))? {
        let path = entry?.path();
        if path.file_name() != Some(OsStr::new("__pycache__")) {
            collect(&path, all)?;
        }
    }
    Ok(())
}

/// Files of a folder with this suffix.
fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    collect(folder, &mut all)?;
    all.retain(|path| path.to_string_lossy().ends_with(ending));
    all.sort();
    Ok(all)
}

/// Copies a folder over another.
fn replace(from: &Path, to: &Path) -> Result<()> {
    emptied(to)?;
    let mut all = Vec::new();
    collect(from, &mut all)?;
    for file in all {
        let copy = to.join(file.strip_prefix(from)?);
        if let Some(folder) = copy.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(&file, &copy).with_context(|| format!("cannot copy `{}`", file.display()))?;
    }
    Ok(())
}
