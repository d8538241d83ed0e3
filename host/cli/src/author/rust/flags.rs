//! Compiler flags that keep the author's paths out of components.
//!
//! A panic message contains the path of its file, which includes the author's home directory for crates of the
//! registry. Cargo reads flags from one source only. Flags of the environment are therefore extended there; otherwise
//! cargo joins `--config build.rustflags` with a configuration file. Flags below `[target.wasm32-wasip2]` override
//! both, and the paths stay.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// The separator in `CARGO_ENCODED_RUSTFLAGS`.
const SEPARATOR: &str = "\u{1f}";

/// Adds the flags to a build.
pub(super) fn remap(command: &mut Command, folder: &Path, cargo_home: Option<&Path>) {
    let home = std::env::home_dir();
    let given = |name: &str| std::env::var(name).ok();
    let ours = flags(folder, home.as_deref(), cargo_home);
    match with(given("CARGO_ENCODED_RUSTFLAGS"), given("RUSTFLAGS"), &ours) {
        CompilerFlags::Environment(flags) => command.env("CARGO_ENCODED_RUSTFLAGS", flags),
        CompilerFlags::Setting(setting) => command.arg("--config").arg(setting),
    };
}

/// How flags are passed to cargo.
#[derive(Debug, PartialEq, Eq)]
enum CompilerFlags {
    /// All flags in `CARGO_ENCODED_RUSTFLAGS`.
    Environment(OsString),
    /// Only ours, as a setting for `--config`.
    Setting(String),
}

fn with(encoded: Option<String>, plain: Option<String>, ours: &[String]) -> CompilerFlags {
    let ours = ours.iter().cloned();
    let given: Vec<String> = match (encoded, plain) {
        (Some(encoded), _) => encoded.split(SEPARATOR).map(str::to_owned).collect(),
        (None, Some(plain)) => plain.split_whitespace().map(str::to_owned).collect(),
        (None, None) => {
            let list: toml_edit::Array = ours.collect();
            return CompilerFlags::Setting(format!("build.rustflags = {list}"));
        }
    };
    let all: Vec<String> = given.into_iter().filter(|flag| !flag.is_empty()).chain(ours).collect();
    CompilerFlags::Environment(all.join(SEPARATOR).into())
}

/// One flag for each folder. The compiler applies the last one that matches a path.
fn flags(folder: &Path, home: Option<&Path>, cargo_home: Option<&Path>) -> Vec<String> {
    let prefixes = [(home, "~"), (cargo_home, "cargo"), (Some(folder), ".")];
    let flag = |(prefix, name): (Option<&Path>, &str)| {
        let prefix = prefix?.to_str().filter(|prefix| prefix.len() > 1)?;
        Some(format!("--remap-path-prefix={prefix}={name}"))
    };
    prefixes.into_iter().filter_map(flag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_author_are_preserved() {
        let ours = flags(
            Path::new("/home/a b/p"),
            Some(Path::new("/home/a b")),
            Some(Path::new("/home/a b/.cargo")),
        );
        let expected = [
            "--remap-path-prefix=/home/a b=~",
            "--remap-path-prefix=/home/a b/.cargo=cargo",
            "--remap-path-prefix=/home/a b/p=.",
        ];
        assert_eq!(ours, expected);
        let CompilerFlags::Setting(setting) = with(None, None, &ours) else { panic!("no setting") };
        let setting: toml_edit::DocumentMut = setting.parse().unwrap();
        let list: Vec<_> =
            setting["build"]["rustflags"].as_array().unwrap().iter().filter_map(|one| one.as_str()).collect();
        assert_eq!(list, expected);
        let one = &ours[..1];
        let all = |text: &str| CompilerFlags::Environment(text.into());
        assert_eq!(
            with(None, Some(" -Ca=b  -Cc ".into()), one),
            all("-Ca=b\u{1f}-Cc\u{1f}--remap-path-prefix=/home/a b=~")
        );
        assert_eq!(
            with(Some("-Ca b".into()), Some("-Cc".into()), one),
            all("-Ca b\u{1f}--remap-path-prefix=/home/a b=~")
        );
        assert_eq!(flags(Path::new("/"), None, None), Vec::<String>::new());
    }
}
