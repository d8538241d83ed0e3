//! Where this user's files of Toolbay are, by the XDG base directory specification.

use std::ffi::OsString;
use std::path::PathBuf;

/// The variable that names the cache of all programs with Toolbay.
const CACHE_VARIABLE: &str = "TOOLBAY_CACHE";

/// `toolbay` in one of the user's directories. A relative value of the variable is ignored, as the specification says.
/// `None`: the user has no home.
#[must_use]
pub fn user_dir(variable: &str, below_home: &str) -> Option<PathBuf> {
    find_user_dir(std::env::var_os(variable), std::env::home_dir(), below_home)
}

/// The cache that the user's programs share: `TOOLBAY_CACHE`, or `toolbay` in the user's cache directory. `None`: the user
/// has no home.
#[must_use]
pub fn shared_cache_dir() -> Option<PathBuf> {
    let given = std::env::var_os(CACHE_VARIABLE).filter(|dir| !dir.is_empty());
    let given = given.and_then(|dir| std::path::absolute(dir).ok());
    given.or_else(xdg_cache_dir)
}

/// `toolbay` in the user's cache directory, whatever `TOOLBAY_CACHE` names.
#[must_use]
pub fn xdg_cache_dir() -> Option<PathBuf> {
    user_dir("XDG_CACHE_HOME", ".cache")
}

fn find_user_dir(given: Option<OsString>, home: Option<PathBuf>, below_home: &str) -> Option<PathBuf> {
    let given = given.map(PathBuf::from).filter(|dir| dir.is_absolute());
    let in_home = || Some(home.filter(|home| home.is_absolute())?.join(below_home));
    Some(given.or_else(in_home)?.join("toolbay"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_wins_over_the_home_and_neither_may_be_relative() {
        for (given, home, expected) in [
            (Some("/cache"), Some("/home/me"), Some("/cache/toolbay")),
            (None, Some("/home/me"), Some("/home/me/.cache/toolbay")),
            (Some("cache"), Some("/home/me"), Some("/home/me/.cache/toolbay")),
            (Some(""), None, None),
            (None, Some(""), None),
            (None, None, None),
        ] {
            let found = find_user_dir(given.map(OsString::from), home.map(PathBuf::from), ".cache");
            assert_eq!(found, expected.map(PathBuf::from), "{given:?} {home:?}");
        }
    }
}
