//! The code that the command line of a server, or of a program without a sandbox, runs in addition to its program.
//!
//! | in the command line | code |
//! |---|---|
//! | the first argument of an interpreter that names a file or folder, and every argument with the extension of code | the argument: `python3 -I /srv/tool.py`; not after an option that names a module or is a program, as in `python3 -m server /srv/data` |
//! | any argument, or its part behind `=`, that names an executable file or a file that starts with `#!` | the file: `env /srv/tool` |
//! | `PYTHONPATH=…`, `NODE_PATH=…`, `LD_PRELOAD=…` and similar variables | the listed files and folders |
//! | a program that loads code from its working folder (`python3 -m`, `python3 -c`, `npx`, …) | the working folder |
//!
//! An argument that only names data is ignored: a server may be given a folder that a plugin writes.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use toolbay_policy::capability::path_rule;
use toolbay_policy::capability::program::Program;
use toolbay_state::regular::open_regular;

/// Programs that run the code of an argument.
const INTERPRETERS: [&str; 24] = [
    "ash", "bash", "bun", "dash", "deno", "dotnet", "fish", "java", "ksh", "lua", "luajit", "node", "nodejs",
    "perl", "php", "pypy", "python", "ruby", "rscript", "sh", "ts-node", "tsx", "uv", "zsh",
];
/// Programs that look for code in their working folder.
const PACKAGE_RUNNERS: [&str; 11] =
    ["bunx", "npm", "npx", "pdm", "pipx", "pnpm", "pnpx", "poetry", "uv", "uvx", "yarn"];
/// Extensions of files that are run or loaded.
const CODE_EXTENSIONS: [&str; 20] = [
    "bash", "cjs", "cts", "jar", "js", "jsx", "lua", "mjs", "mts", "php", "pl", "pm", "py", "pyz", "r", "rb",
    "sh", "so", "ts", "tsx",
];
/// Variables that name files to load, or folders to search for code.
const LOADER_VARIABLES: [&str; 18] = [
    "BASH_ENV",
    "CLASSPATH",
    "ENV",
    "GEM_PATH",
    "LD_AUDIT",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LUA_CPATH",
    "LUA_PATH",
    "NODE_PATH",
    "PATH",
    "PERL5LIB",
    "PERLLIB",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "RUBYLIB",
];

/// A file or folder from which a command line runs code.
#[derive(Debug)]
pub(super) struct CodeSource {
    pub(super) path: PathBuf,
    /// Its role in the command line.
    pub(super) role: &'static str,
    /// The remedy if others can write there.
    pub(super) remedy: &'static str,
}

/// Returns every file and folder from which the command line runs code. Blocks.
pub(super) fn code_sources(program: &Program, args: &[String]) -> Vec<CodeSource> {
    let found = |path, role| CodeSource { path, role, remedy: "" };
    let kind = program_kind(&program.path);
    let mut all = Vec::new();
    let interprets = INTERPRETERS.contains(&kind.as_str());
    let runs_operand = !has_program_option(&kind, args);
    let named = args.iter().flat_map(|arg| argument_paths(program, arg)).filter(|path| path.exists());
    for (index, path) in named.enumerate() {
        if interprets && ((index == 0 && runs_operand) || is_code(&path)) {
            all.push(found(path, "the script"));
        } else if is_runnable(&path) {
            all.push(found(path, "the argument"));
        }
    }
    for rule in program.env.iter().filter(|rule| LOADER_VARIABLES.contains(&rule.name.as_str())) {
        let value = rule.value.clone().or_else(|| std::env::var(&rule.name).ok()).unwrap_or_default();
        let parts = value.split([':', ';']).filter(|part| part.starts_with('/'));
        all.extend(parts.map(|part| found(PathBuf::from(part), "the loader path")));
    }
    if loads_from_cwd(&kind, args) {
        all.push(CodeSource {
            remedy: match kind.as_str() {
                "python" | "pypy" => {
                    "; to start it in another folder, write `cwd = …` in its section, or let it load no code from there \
                     with the option `-P` (Python 3.11)"
                }
                _ => "; to start it in another folder, write `cwd = …` in its section",
            },
            ..found(program.cwd.clone(), "the working folder, from which it loads code,")
        });
    }
    all
}

/// Returns the scripts that the command line names and that do not exist yet, each by all its names. Blocks.
pub(super) fn missing_scripts(program: &Program, args: &[String]) -> Vec<PathBuf> {
    let kind = program_kind(&program.path);
    if !INTERPRETERS.contains(&kind.as_str()) {
        return Vec::new();
    }
    let operand = args.iter().find(|arg| !arg.starts_with('-')).filter(|_| !has_program_option(&kind, args));
    let operand = operand.map(|operand| program.cwd.join(operand));
    let code =
        args.iter().flat_map(|arg| argument_paths(program, arg)).filter(|path| has_code_extension(path));
    let missing = operand.into_iter().chain(code).filter(|path| !path.exists());
    let names = |path: PathBuf| {
        // With the links of its folder resolved, if that exists.
        let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
        let resolved = folder.zip(path.file_name()).map(|(folder, name)| folder.join(name));
        let normalized = path_rule::normalize(&path);
        [Some(path), normalized, resolved].into_iter().flatten()
    };
    missing.flat_map(names).collect()
}

/// Makes the parts of a list of folders absolute, relative to `folder`.
pub(super) fn absolute_parts(folder: &Path, list: &str) -> String {
    let parts = list.split([':', ';']).map(|part| folder.join(part).display().to_string());
    parts.collect::<Vec<_>>().join(":")
}

/// The name of a program without its version: `python3.12` is `python`.
fn program_kind(path: &Path) -> String {
    let behind = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-')).to_owned()
    };
    let name = behind(path);
    let known = INTERPRETERS.contains(&name.as_str()) || PACKAGE_RUNNERS.contains(&name.as_str());
    // Either name can be the known one: `/usr/bin/env` is a file, `/usr/bin/python` a link to another.
    if known { name } else { std::fs::canonicalize(path).map_or(name, |path| behind(&path)) }
}

/// Whether a file has the extension of code.
fn is_code(path: &Path) -> bool {
    path.is_file() && has_code_extension(path)
}

fn has_code_extension(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    CODE_EXTENSIONS.contains(&extension.as_str())
}

/// The paths that an argument can name: all of it, and its part behind `=`.
fn argument_paths(program: &Program, arg: &str) -> impl Iterator<Item = PathBuf> {
    let value = arg.split_once('=').map(|(_, value)| value);
    let texts = [Some(arg), value].into_iter().flatten().filter(|text| !text.is_empty());
    texts.map(|text| program.cwd.join(text)).collect::<Vec<_>>().into_iter()
}

/// Whether a file can be executed.
fn is_runnable(path: &Path) -> bool {
    let Ok(meta) = std::fs::metadata(path) else { return false };
    if !meta.is_file() {
        return false;
    }
    let begins = || {
        let mut start = [0; 2];
        open_regular(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *b"#!"
    };
    meta.permissions().mode() & 0o111 != 0 || begins()
}

/// Whether an option in front of the operands of an interpreter names the program, so that no operand does: a module
/// (`python3 -m server`), the text of a program (`node -e …`), or a class (`java Main`).
fn has_program_option(kind: &str, args: &[String]) -> bool {
    let options = || args.iter().take_while(|arg| arg.starts_with('-') && arg.len() > 1).map(String::as_str);
    let given = |names: &[&str]| {
        options().any(|arg| names.contains(&arg.split_once('=').map_or(arg, |(name, _)| name)))
    };
    match kind {
        "python" | "pypy" => PythonOptions::parse(args).names_program,
        "bun" | "node" | "nodejs" | "ts-node" | "tsx" => given(&["-e", "--eval", "-p", "--print", "-pe"]),
        "lua" | "luajit" | "perl" | "rscript" | "ruby" => given(&["-e", "-E"]),
        "php" => given(&["-r", "--run"]),
        "ash" | "bash" | "dash" | "fish" | "ksh" | "sh" | "zsh" => {
            options().any(|arg| !arg.starts_with("--") && arg.contains('c'))
        }
        "java" => given(&["-m", "--module"]),
        // `uv tool run` runs a package.
        "uv" => args.iter().find(|arg| !arg.starts_with('-')).is_some_and(|arg| arg == "tool"),
        _ => false,
    }
}

/// The options of Python up to its first operand.
#[derive(Debug, Default, PartialEq, Eq)]
struct PythonOptions {
    /// Whether it runs a module or a text, and no file.
    names_program: bool,
    /// Whether it loads no code from its working folder.
    is_isolated: bool,
}

impl PythonOptions {
    /// Options can share an argument, and the last of them can have its value behind it or in the next argument:
    /// `-Im server`, `-Wignore`, `-X utf8`.
    fn parse(args: &[String]) -> Self {
        let mut found = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if arg == "--check-hash-based-pycs" {
                args.next();
                continue;
            }
            if arg.starts_with("--") {
                continue;
            }
            let Some(letters) = arg.strip_prefix('-') else { return found };
            if letters.is_empty() {
                // The program comes from stdin.
                found.names_program = true;
                return found;
            }
            for (at, letter) in letters.char_indices() {
                match letter {
                    'm' | 'c' => {
                        found.names_program = true;
                        return found;
                    }
                    'W' | 'X' => {
                        if at + 1 == letters.len() {
                            args.next();
                        }
                        break;
                    }
                    'I' | 'P' => found.is_isolated = true,
                    _ => {}
                }
            }
        }
        found
    }
}

/// Whether the program looks for code in its working folder.
fn loads_from_cwd(kind: &str, args: &[String]) -> bool {
    match kind {
        "python" | "pypy" => {
            let options = PythonOptions::parse(args);
            !options.is_isolated && (options.names_program || args.is_empty())
        }
        _ => PACKAGE_RUNNERS.contains(&kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolbay_policy::capability::environment::EnvRule;
    use toolbay_policy::rule::GrantRule as _;

    fn program(path: &str, cwd: &Path, env: &[&str]) -> Program {
        let policy =
            format!("version = 1\n[programs.x]\npath = {path:?}\ncwd = {:?}", cwd.display().to_string());
        let policy = toolbay_policy::Policy::parse(&policy, cwd, None).unwrap();
        let mut program = policy.program("x").unwrap().clone();
        program.env = env.iter().map(|text| EnvRule::parse(text, cwd).unwrap()).collect();
        program
    }

    #[test]
    fn a_script_that_does_not_exist_yet_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::fs::write(dir.join("a.py"), "print()").unwrap();
        let check = |path: &str, args: &[&str], expect: &[&str]| {
            let args: Vec<String> = args.iter().map(ToString::to_string).collect();
            let found = missing_scripts(&program(path, &dir, &[]), &args);
            let is_expected = |path: &PathBuf| expect.iter().any(|name| *path == dir.join(name));
            assert!(
                found.iter().all(is_expected) && found.is_empty() == expect.is_empty(),
                "{args:?}: {found:?}"
            );
        };
        check("/x/python3", &["-I", "b", "data"], &["b"]);
        check("/x/python3", &["in/../b.py"], &["b.py", "in/../b.py"]);
        check("/x/python3", &["a.py", "data"], &[]);
        check("/x/python3", &["a.py", "b.py"], &["b.py"]);
        check("/x/sh", &["-c", "exec server", "data"], &[]);
        check("/x/cat", &["b.py"], &[]);
        assert_eq!(absolute_parts(Path::new("/w"), "lib:/opt/lib"), "/w/lib:/opt/lib");
    }

    #[test]
    fn every_code_source_of_a_command_line_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        for (name, text, mode) in
            [("a.py", "print()", 0o644), ("b", "#!/bin/sh\n", 0o644), ("c", "x", 0o755), ("data", "x", 0o644)]
        {
            std::fs::write(dir.join(name), text).unwrap();
            std::fs::set_permissions(dir.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let check = |path: &str, args: &[&str], env: &[&str], expect: &[&str]| {
            let args: Vec<String> = args.iter().map(ToString::to_string).collect();
            let found = code_sources(&program(path, &dir, env), &args);
            let found: Vec<String> = found
                .iter()
                .map(|one| one.path.strip_prefix(&dir).unwrap_or(&one.path).display().to_string())
                .collect();
            assert_eq!(found, expect, "{path} {args:?} {env:?}");
        };
        check("/x/python3.12", &["-I", "a.py", "data"], &[], &["a.py"]);
        check("/x/python3", &["-u", dir.join("a.py").to_str().unwrap()], &[], &["a.py"]);
        check("/x/python3", &["-m", "server"], &[], &[""]);
        check("/x/python3", &["-I", "-m", "server"], &[], &[]);
        // A module or a text is the program, so that a path behind it is data. Files with code stay suspicious.
        check("/x/python3", &["-I", "-m", "server", "--repository", "."], &[], &[]);
        check("/x/python3.12", &["-Im", "server", ".", "a.py"], &[], &["a.py"]);
        check("/x/pypy3", &["-X", "utf8", "-Wignore", "-I", "-mserver", "."], &[], &[]);
        check("/x/python3", &["-W", "ignore", "-m", "server", "."], &[], &[""]);
        check("/x/python3", &["-mPIL", "."], &[], &[""]);
        check("/x/python3", &["-c", "import server", "."], &[], &[""]);
        check("/x/python3", &["-P", "-c", "import server", "data"], &[], &[]);
        check("/x/python3", &["data", "-m", "server"], &[], &["data"]);
        check("/x/python3", &["-I", "."], &[], &[""]);
        check("/x/node", &["-e", "1", "data"], &[], &[]);
        check("/x/node", &["--eval=1", "data"], &[], &[]);
        check("/x/sh", &["-ec", "exec server", "data"], &[], &[]);
        check("/x/sh", &["data", "-c"], &[], &["data"]);
        check("/x/perl", &["-e", "1", "data"], &[], &[]);
        check("/x/php", &["-r", "1;", "data"], &[], &[]);
        check("/x/java", &["--module=m/Main", "data"], &[], &[]);
        check("/x/npx", &["-y", "server", "data"], &[], &[""]);
        check("/x/env", &["b", "data"], &[], &["b"]);
        check("/x/tool", &["--run=c", "data", "a.py"], &[], &["c"]);
        check("/x/tool", &["data"], &["PYTHONPATH=/p:/q", "OTHER=/r"], &["/p", "/q"]);
        check("/x/node", &["data", "--require=a.py", "a.js"], &[], &["data", "a.py"]);
    }
}
