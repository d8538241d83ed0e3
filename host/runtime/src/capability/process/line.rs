//! What the line of a server makes run, beside the program that it begins with.
//!
//! | in the line | what runs |
//! |---|---|
//! | the first argument of an interpreter that names a file or folder, and all others that are code by their names | that: `python3 -I /srv/tool.py` |
//! | any argument, or what is behind its `=`, that names a file which is executable or begins with `#!` | it may: `env /srv/tool` |
//! | `PYTHONPATH=…`, `NODE_PATH=…`, `LD_PRELOAD=…` and their like | what is found there |
//! | the folder that it starts in, where the interpreter looks there first (`python3 -m`, `python3 -c`, `npx`, …) | what is found there |
//!
//! An argument that only names data stands for nothing here: a server may be given a folder that a plugin writes.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use toolbay_policy::capability::program::Program;

use crate::storage::regular::open_regular;

/// Programs that run what they are given.
const INTERPRETERS: [&str; 24] = [
    "ash", "bash", "bun", "dash", "deno", "dotnet", "fish", "java", "ksh", "lua", "luajit", "node", "nodejs",
    "perl", "php", "pypy", "python", "ruby", "rscript", "sh", "ts-node", "tsx", "uv", "zsh",
];
/// Programs that look for what they run in the folder that they start in.
const RUNNERS: [&str; 11] =
    ["bunx", "npm", "npx", "pdm", "pipx", "pnpm", "pnpx", "poetry", "uv", "uvx", "yarn"];
/// What the names of files end with that are run or loaded.
const CODE: [&str; 20] = [
    "bash", "cjs", "cts", "jar", "js", "jsx", "lua", "mjs", "mts", "php", "pl", "pm", "py", "pyz", "r", "rb",
    "sh", "so", "ts", "tsx",
];
/// Variables with files that are loaded, or folders in which code is looked for.
const LOADERS: [&str; 18] = [
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

/// A place from which a line makes something run.
#[derive(Debug)]
pub(super) struct Runs {
    pub(super) place: PathBuf,
    /// What it is to the line.
    pub(super) what: &'static str,
    /// What would help, if others may write there.
    pub(super) remedy: &'static str,
}

/// Each place from which the line makes something run. Blocking.
pub(super) fn runs(program: &Program, args: &[String]) -> Vec<Runs> {
    let found = |place, what| Runs { place, what, remedy: "" };
    let kind = kind(&program.path);
    let mut all = Vec::new();
    let interprets = INTERPRETERS.contains(&kind.as_str());
    let named = args.iter().flat_map(|arg| places(program, arg)).filter(|path| path.exists());
    for (index, path) in named.enumerate() {
        if interprets && (index == 0 || is_code(&path)) {
            all.push(found(path, "the script"));
        } else if can_run(&path) {
            all.push(found(path, "the argument"));
        }
    }
    for rule in program.env.iter().filter(|rule| LOADERS.contains(&rule.name.as_str())) {
        let value = rule.value.clone().or_else(|| std::env::var(&rule.name).ok()).unwrap_or_default();
        let parts = value.split([':', ';']).filter(|part| part.starts_with('/'));
        all.extend(parts.map(|part| found(PathBuf::from(part), "a folder or file of its loader,")));
    }
    if looks_around(&kind, args) {
        all.push(Runs {
            remedy: "; to start it elsewhere, write `cwd = …` in its section",
            ..found(program.cwd.clone(), "the folder that it starts in and looks for code in,")
        });
    }
    all
}

/// What a program is, without its version: `python3.12` is `python`.
fn kind(path: &Path) -> String {
    let behind = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-')).to_owned()
    };
    let name = behind(path);
    let known = INTERPRETERS.contains(&name.as_str()) || RUNNERS.contains(&name.as_str());
    // `/usr/bin/env` is one file, `/usr/bin/python` a link to another; either name may be the one that is known.
    if known { name } else { std::fs::canonicalize(path).map_or(name, |path| behind(&path)) }
}

/// Whether a file is code by its name.
fn is_code(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    path.is_file() && CODE.contains(&extension.as_str())
}

/// What an argument can name: all of it, and what is behind a `=`.
fn places(program: &Program, arg: &str) -> impl Iterator<Item = PathBuf> {
    let value = arg.split_once('=').map(|(_, value)| value);
    let texts = [Some(arg), value].into_iter().flatten().filter(|text| !text.is_empty());
    texts.map(|text| program.cwd.join(text)).collect::<Vec<_>>().into_iter()
}

/// Whether a file can be run by itself.
fn can_run(path: &Path) -> bool {
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

/// Whether code is looked for in the folder that the program starts in.
fn looks_around(kind: &str, args: &[String]) -> bool {
    let given = |options: &[&str]| args.iter().any(|arg| options.contains(&arg.as_str()));
    match kind {
        "python" | "pypy" => {
            let isolated = args.iter().take_while(|arg| arg.starts_with('-')).any(|arg| {
                let short = arg.trim_start_matches('-');
                !arg.starts_with("--") && short.contains(['I', 'P'])
            });
            !isolated && (args.is_empty() || given(&["-m", "-c", "-"]))
        }
        _ => RUNNERS.contains(&kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolbay_policy::capability::environment::EnvRule;
    use toolbay_policy::rule::Rule as _;

    fn program(path: &str, cwd: &Path, env: &[&str]) -> Program {
        let policy =
            format!("version = 1\n[programs.x]\npath = {path:?}\ncwd = {:?}", cwd.display().to_string());
        let policy = toolbay_policy::Policy::parse(&policy, cwd, None).unwrap();
        let mut program = policy.program("x").unwrap().clone();
        program.env = env.iter().map(|text| EnvRule::parse(text, cwd).unwrap()).collect();
        program
    }

    #[test]
    fn what_a_line_makes_run() {
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
            let found = runs(&program(path, &dir, env), &args);
            let found: Vec<String> = found
                .iter()
                .map(|one| one.place.strip_prefix(&dir).unwrap_or(&one.place).display().to_string())
                .collect();
            assert_eq!(found, expect, "{path} {args:?} {env:?}");
        };
        check("/x/python3.12", &["-I", "a.py", "data"], &[], &["a.py"]);
        check("/x/python3", &["-u", dir.join("a.py").to_str().unwrap()], &[], &["a.py"]);
        check("/x/python3", &["-m", "server"], &[], &[""]);
        check("/x/python3", &["-I", "-m", "server"], &[], &[]);
        check("/x/npx", &["-y", "server", "data"], &[], &[""]);
        check("/x/env", &["b", "data"], &[], &["b"]);
        check("/x/tool", &["--run=c", "data", "a.py"], &[], &["c"]);
        check("/x/tool", &["data"], &["PYTHONPATH=/p:/q", "OTHER=/r"], &["/p", "/q"]);
        check("/x/node", &["data", "--require=a.py", "a.js"], &[], &["data", "a.py"]);
    }
}
