//! Flags of the compiler that keep the author's folders out of components.
//!
//! Each panic names its file, and what comes from the registry by its whole path, with the author's name in it. The flags
//! go where the author's own are kept: cargo takes one source of flags and leaves the others, so that flags of the
//! environment are added to, and those of a configuration file are joined by cargo. Only flags that stand under a target
//! (`[target.wasm32-wasip2]`) take the place of these, and the paths stay.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// What separates flags in `CARGO_ENCODED_RUSTFLAGS`.
const SEPARATOR: &str = "\u{1f}";

/// Adds the flags to a build of a project.
pub(super) fn remap(command: &mut Command, folder: &Path, cargo_home: Option<&Path>) {
    let home = std::env::home_dir();
    let given = |name: &str| std::env::var(name).ok();
    let ours = flags(folder, home.as_deref(), cargo_home);
    match with(given("CARGO_ENCODED_RUSTFLAGS"), given("RUSTFLAGS"), &ours) {
        Flags::Environment(flags) => command.env("CARGO_ENCODED_RUSTFLAGS", flags),
        Flags::Setting(setting) => command.arg("--config").arg(setting),
    };
}

/// Where flags are put.
#[derive(Debug, PartialEq, Eq)]
enum Flags {
    /// All, in `CARGO_ENCODED_RUSTFLAGS`.
    Environment(OsString),
    /// Ours, as a setting of cargo's.
    Setting(String),
}

fn with(encoded: Option<String>, plain: Option<String>, ours: &[String]) -> Flags {
    let ours = ours.iter().cloned();
    let theirs: Vec<String> = match (encoded, plain) {
        (Some(encoded), _) => encoded.split(SEPARATOR).map(str::to_owned).collect(),
        (None, Some(plain)) => plain.split_whitespace().map(str::to_owned).collect(),
        (None, None) => {
            let list: toml_edit::Array = ours.collect();
            return Flags::Setting(format!("build.rustflags = {list}"));
        }
    };
    let all: Vec<String> = theirs.into_iter().filter(|flag| !flag.is_empty()).chain(ours).collect();
    Flags::Environment(all.join(SEPARATOR).into())
}

/// One for each folder; of several that fit a path, the compiler takes the last.
fn flags(folder: &Path, home: Option<&Path>, cargo_home: Option<&Path>) -> Vec<String> {
    let places = [(home, "~"), (cargo_home, "cargo"), (Some(folder), ".")];
    let flag = |(place, name): (Option<&Path>, &str)| {
        let place = place?.to_str().filter(|place| place.len() > 1)?;
        Some(format!("--remap-path-prefix={place}={name}"))
    };
    places.into_iter().filter_map(flag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authors_own_flags_stay() {
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
        let Flags::Setting(setting) = with(None, None, &ours) else { panic!("no setting") };
        let setting: toml_edit::DocumentMut = setting.parse().unwrap();
        let list: Vec<_> =
            setting["build"]["rustflags"].as_array().unwrap().iter().filter_map(|one| one.as_str()).collect();
        assert_eq!(list, expected);
        let one = &ours[..1];
        let all = |text: &str| Flags::Environment(text.into());
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
