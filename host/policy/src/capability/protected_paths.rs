//! Protected paths, which no policy grants. A program that reads them can act as the user, and one that writes them
//! decides what runs next. Only the operator can exempt a path, on the command line (`--allow-protected-path PATH`),
//! because another user could have written the policy file.
//!
//! A grant of a folder inside a protected path is refused. A grant of a folder around a protected path excludes the
//! protected path. This module compares only names; the runtime adds the targets of links.

use std::path::{Path, PathBuf};

/// In the home folder: keys, tokens, password stores, browser profiles, histories.
const HOME_SECRETS: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".netrc",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".git-credentials",
    ".pgpass",
    ".my.cnf",
    ".vault-token",
    ".password-store",
    ".terraform.d",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".config/gcloud",
    ".config/gh",
    ".config/hub",
    ".config/op",
    ".config/git/credentials",
    ".config/sops",
    ".config/rclone",
    ".config/containers/auth.json",
    ".local/share/keyrings",
    ".mozilla",
    ".thunderbird",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    "Library/Keychains",
    "Library/Cookies",
    "Library/Application Support/Google/Chrome",
    "Library/Application Support/Firefox",
    ".history",
    ".sh_history",
    ".bash_history",
    ".zsh_history",
    ".zhistory",
    ".ksh_history",
    ".local/share/fish",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".mysql_history",
    ".sqlite_history",
    ".rediscli_history",
    ".lesshst",
    ".viminfo",
];

/// In the home folder: files that run at the next login, shell or commit.
const HOME_STARTS: &[&str] = &[
    ".profile",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".config/fish",
    ".config/autostart",
    ".config/systemd",
    ".config/environment.d",
    ".gitconfig",
    ".config/git",
    "Library/LaunchAgents",
];

/// Paths of the system.
const SYSTEM: &[&str] = &[
    "/proc",
    "/sys",
    "/dev",
    "/boot",
    "/etc/passwd",
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssh",
    "/etc/ssl/private",
    "/run/secrets",
    "/var/run/secrets",
];

/// A memory file system for all users, below `/dev` but not a device.
const SHARED_MEMORY: &str = "/dev/shm";
/// The home folder of the superuser.
const ROOT: &str = "/root";

/// The kind of access that a path is protected from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// Reading and writing.
    ReadAndWrite,
    /// Only writing; its content is not secret.
    WriteOnly,
}

/// The protected paths and the operator's exemptions. All paths are absolute and normalized.
#[derive(Debug, Clone, Default)]
pub struct ProtectedPaths {
    protected: Vec<(PathBuf, Protection)>,
    exemptions: Vec<PathBuf>,
}

impl ProtectedPaths {
    /// The protected paths of a Unix system and of a user's home folder.
    #[must_use]
    pub fn system_defaults(home: Option<&Path>) -> Self {
        let mut protected = Self::default();
        for path in SYSTEM {
            protected.protect(PathBuf::from(path), Protection::ReadAndWrite);
        }
        protected.exempt(PathBuf::from(SHARED_MEMORY));
        if home.is_none_or(|home| !home.starts_with(ROOT)) {
            protected.protect(PathBuf::from(ROOT), Protection::ReadAndWrite);
        }
        if let Some(home) = home {
            HOME_SECRETS.iter().for_each(|path| protected.protect(home.join(path), Protection::ReadAndWrite));
            HOME_STARTS.iter().for_each(|path| protected.protect(home.join(path), Protection::WriteOnly));
        }
        protected
    }

    /// Protects a path.
    pub fn protect(&mut self, path: PathBuf, from: Protection) {
        if !self.protected.contains(&(path.clone(), from)) {
            self.protected.push((path, from));
        }
    }

    /// Exempts a path and everything below it.
    pub fn exempt(&mut self, path: PathBuf) {
        self.exemptions.push(path);
    }

    /// Whether the operator exempted a path.
    #[must_use]
    pub fn is_exempt(&self, path: &Path) -> bool {
        self.exemptions.iter().any(|open| path.starts_with(open))
    }

    /// Returns all protected paths and all exemptions.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.protected.iter().map(|(path, _)| path).chain(&self.exemptions).map(PathBuf::as_path)
    }

    /// Adds the alias that `resolve` returns for each path, such as the target of a link.
    #[must_use]
    pub fn with_aliases(mut self, resolve: impl Fn(&Path) -> Option<PathBuf>) -> Self {
        let more: Vec<_> =
            self.protected.iter().filter_map(|(path, from)| Some((resolve(path)?, *from))).collect();
        more.into_iter().for_each(|(path, from)| self.protect(path, from));
        let more: Vec<_> = self.exemptions.iter().filter_map(|path| resolve(path)).collect();
        more.into_iter().filter(|path| path.parent().is_some()).for_each(|path| self.exempt(path));
        self
    }

    /// Returns the protected path that equals or contains `path`.
    #[must_use]
    pub fn protected_ancestor(&self, path: &Path, writing: bool) -> Option<&Path> {
        if self.is_exempt(path) {
            return None;
        }
        self.protected_from(writing).find(|protected| path.starts_with(protected))
    }

    /// Returns the protected paths below a folder.
    pub fn protected_below<'a>(&'a self, folder: &'a Path, writing: bool) -> impl Iterator<Item = &'a Path> {
        let opened = |path: &Path| self.exemptions.iter().any(|open| path.starts_with(open));
        self.protected_from(writing)
            .filter(move |path| *path != folder && path.starts_with(folder) && !opened(path))
    }

    fn protected_from(&self, writing: bool) -> impl Iterator<Item = &Path> {
        let kept =
            self.protected.iter().filter(move |(_, from)| writing || *from == Protection::ReadAndWrite);
        kept.map(|(path, _)| path.as_path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protected() -> ProtectedPaths {
        let mut protected = ProtectedPaths::system_defaults(Some(Path::new("/home/me")));
        protected.protect("/home/me/.config/toolbay".into(), Protection::WriteOnly);
        protected
    }

    #[test]
    fn paths_are_protected_from_reading_or_writing() {
        for (path, read, write) in [
            ("/home/me/.ssh", true, true),
            ("/home/me/.ssh/id_ed25519", true, true),
            ("/home/me/.sshx", false, false),
            ("/home/me/.bashrc", false, true),
            ("/home/me/.config/toolbay/toolbay.toml", false, true),
            ("/home/me/.config", false, false),
            ("/home/me/project", false, false),
            ("/home/you/.ssh", false, false),
            ("/proc/self/environ", true, true),
            ("/dev/shm/x", false, false),
            ("/dev/sda", true, true),
            ("/etc/shadow", true, true),
            ("/etc/hosts", false, false),
            ("/", false, false),
        ] {
            let (protected, path) = (protected(), Path::new(path));
            assert_eq!(
                (
                    protected.protected_ancestor(path, false).is_some(),
                    protected.protected_ancestor(path, true).is_some()
                ),
                (read, write),
                "{path:?}"
            );
        }
        assert!(
            ProtectedPaths::system_defaults(Some(Path::new(ROOT)))
                .protected_ancestor(&Path::new(ROOT).join("x"), true)
                .is_none()
        );
        assert!(
            ProtectedPaths::system_defaults(None)
                .protected_ancestor(&Path::new(ROOT).join("x"), false)
                .is_some()
        );
    }

    #[test]
    fn protected_paths_below_a_folder_are_listed() {
        let protected = protected();
        let config = Path::new("/home/me/.config");
        assert!(protected.protected_below(config, true).any(|path| path.ends_with("toolbay")));
        assert!(!protected.protected_below(config, false).any(|path| path.ends_with("toolbay")));
        assert!(protected.protected_below(config, false).any(|path| path.ends_with("gh")));
        assert_eq!(protected.protected_below(Path::new("/home/me/project"), true).count(), 0);
        assert_eq!(
            protected.protected_below(Path::new("/proc"), true).count(),
            0,
            "a path is not below itself"
        );
    }

    #[test]
    fn an_exempt_path_is_not_protected() {
        let mut protected = protected();
        protected.exempt("/home/me/.ssh/known_hosts".into());
        assert!(protected.protected_ancestor(Path::new("/home/me/.ssh/known_hosts"), false).is_none());
        assert!(protected.protected_ancestor(Path::new("/home/me/.ssh/id"), false).is_some());
        assert!(protected.protected_below(Path::new("/home/me"), false).any(|path| path.ends_with(".ssh")));
        protected.exempt("/home/me/.ssh".into());
        assert!(protected.protected_ancestor(Path::new("/home/me/.ssh/id"), false).is_none());
        assert!(!protected.protected_below(Path::new("/home/me"), false).any(|path| path.ends_with(".ssh")));
    }

    #[test]
    fn a_path_is_protected_under_each_alias() {
        let protected =
            protected().with_aliases(|path| Some(Path::new("/real").join(path.strip_prefix("/home").ok()?)));
        assert!(protected.protected_ancestor(Path::new("/real/me/.ssh/id"), false).is_some());
        assert!(protected.protected_ancestor(Path::new("/home/me/.ssh/id"), false).is_some());
    }
}
