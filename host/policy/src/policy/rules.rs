//! The lists of a level of the policy, and the names they have in its text.

use std::path::Path;

use ipnet::IpNet;

use crate::capability::attachment::AttachmentRule;
use crate::capability::environment::EnvRule;
use crate::capability::invoke_rule::InvokeRule;
use crate::capability::kv::Scope;
use crate::capability::net::NetRule;
use crate::capability::program::ProgramRule;
use crate::capability::reach::Reach;
use crate::capability::secret::SecretRule;
use crate::rule::Rule;

/// One level of rules. In a plugin's grant an absent list is empty; elsewhere it narrows nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Rules {
    pub(super) fs_read: Option<Vec<Reach>>,
    pub(super) fs_write: Option<Vec<Reach>>,
    pub(super) net: Option<Vec<NetRule>>,
    pub(super) net_private: Option<Vec<IpNet>>,
    pub(super) process: Option<Vec<ProgramRule>>,
    pub(super) secrets: Option<Vec<SecretRule>>,
    pub(super) kv: Option<Vec<Scope>>,
    pub(super) env: Option<Vec<EnvRule>>,
    pub(super) attachments: Option<Vec<AttachmentRule>>,
    pub(super) clock: Option<bool>,
    pub(super) random: Option<bool>,
    pub(super) invoke: Option<Vec<InvokeRule>>,
}

/// A list of the policy that grants something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// `fs_read`
    FsRead,
    /// `fs_write`
    FsWrite,
    /// `net`
    Net,
    /// `net_private`
    NetPrivate,
    /// `process`
    Process,
    /// `secrets`
    Secrets,
    /// `kv`
    Kv,
    /// `env`
    Env,
    /// `attachments`
    Attachments,
    /// `clock`
    Clock,
    /// `random`
    Random,
    /// `invoke`
    Invoke,
}

impl Key {
    /// All of them, in the order of the policy's pages.
    pub const ALL: [Self; 12] = [
        Self::FsRead,
        Self::FsWrite,
        Self::Net,
        Self::NetPrivate,
        Self::Process,
        Self::Secrets,
        Self::Kv,
        Self::Env,
        Self::Attachments,
        Self::Clock,
        Self::Random,
        Self::Invoke,
    ];

    /// The key as it stands in the policy.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FsRead => "fs_read",
            Self::FsWrite => "fs_write",
            Self::Net => "net",
            Self::NetPrivate => "net_private",
            Self::Process => "process",
            Self::Secrets => "secrets",
            Self::Kv => "kv",
            Self::Env => "env",
            Self::Attachments => "attachments",
            Self::Clock => "clock",
            Self::Random => "random",
            Self::Invoke => "invoke",
        }
    }
}

impl Rules {
    /// A list as the policy would write it; `None` if it is not there.
    pub(super) fn shown(&self, key: Key, workspace: &Path) -> Option<Vec<String>> {
        fn all<R: Rule>(rules: Option<&Vec<R>>, workspace: &Path) -> Option<Vec<String>> {
            rules.map(|rules| R::show_list(rules, workspace))
        }
        match key {
            Key::FsRead => all(self.fs_read.as_ref(), workspace),
            Key::FsWrite => all(self.fs_write.as_ref(), workspace),
            Key::Net => all(self.net.as_ref(), workspace),
            Key::NetPrivate => all(self.net_private.as_ref(), workspace),
            Key::Process => all(self.process.as_ref(), workspace),
            Key::Secrets => all(self.secrets.as_ref(), workspace),
            Key::Kv => all(self.kv.as_ref(), workspace),
            Key::Env => all(self.env.as_ref(), workspace),
            Key::Attachments => all(self.attachments.as_ref(), workspace),
            Key::Clock => self.clock.map(|on| vec![on.to_string()]),
            Key::Random => self.random.map(|on| vec![on.to_string()]),
            Key::Invoke => all(self.invoke.as_ref(), workspace),
        }
    }

    /// Whether a list is there and holds what `wish` means.
    pub(super) fn hold(&self, key: Key, wish: &str, workspace: &Path) -> Option<bool> {
        fn any<R: Rule>(rules: Option<&Vec<R>>, wish: &str, workspace: &Path) -> Option<bool> {
            let wish = R::parse(wish, workspace);
            rules.map(|rules| wish.is_ok_and(|wish| rules.iter().any(|rule| rule.grants(&wish))))
        }
        match key {
            Key::FsRead => any(self.fs_read.as_ref(), wish, workspace),
            Key::FsWrite => any(self.fs_write.as_ref(), wish, workspace),
            Key::Net => any(self.net.as_ref(), wish, workspace),
            Key::NetPrivate => any(self.net_private.as_ref(), wish, workspace),
            Key::Process => any(self.process.as_ref(), wish, workspace),
            Key::Secrets => any(self.secrets.as_ref(), wish, workspace),
            Key::Kv => any(self.kv.as_ref(), wish, workspace),
            Key::Env => any(self.env.as_ref(), wish, workspace),
            Key::Attachments => any(self.attachments.as_ref(), wish, workspace),
            Key::Clock => self.clock,
            Key::Random => self.random,
            Key::Invoke => any(self.invoke.as_ref(), wish, workspace),
        }
    }
}
