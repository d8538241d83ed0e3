//! The kinds of capability and the policy keys that grant them, in one table.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::rule::GrantRule;

/// Calls a macro with the table of kinds. An entry has this form:
///
/// ```text
/// [Kind "name in the contract" "an interface that uses it" …] Key key: RuleType, "what it grants";
/// ```
///
/// The part in brackets is absent if the key only narrows another key. Interfaces are given by their prefix. A new
/// kind needs this entry, its rule type, and the code that enforces it.
macro_rules! kinds {
    ($callback:ident! { $($context:tt)* }) => {
        $callback! {
            [
                [FsRead "fs-read" "toolbay:plugin/files@" "wasi:filesystem/"]
                    FsRead fs_read: $crate::capability::path_rule::PathRule, "files to read";
                [FsWrite "fs-write" "toolbay:plugin/files@" "wasi:filesystem/"]
                    FsWrite fs_write: $crate::capability::path_rule::PathRule, "files to write; does not allow reading";
                [Net "net" "toolbay:plugin/http-client@" "wasi:http/" "wasi:sockets/"]
                    Net net: $crate::capability::net::NetRule,
                    "requests and connections: methods, scheme, host, port and path";
                NetPrivate net_private: ::ipnet::IpNet,
                    "private networks that these connections may reach, `10.1.0.0/16`; by default public addresses only";
                [Process "process" "toolbay:plugin/process@"]
                    Process process: $crate::capability::program::ProgramRule,
                    "programs of `[programs]`, with patterns for their arguments";
                [Secret "secret" "toolbay:plugin/secrets@"]
                    Secrets secrets: $crate::capability::secret::SecretRule,
                    "credentials of `[secrets]`, by name";
                [Kv "kv" "toolbay:plugin/kv@" "wasi:keyvalue/"] Kv kv: $crate::capability::kv::KvScope,
                    "scopes of the key-value store: `tool`, `plugin`, `session`, `agent`";
                [Env "env" "wasi:cli/environment@"]
                    Env env: $crate::capability::environment::EnvRule,
                    "environment variables, `TZ` with the host's value or `TZ=UTC` with a fixed value";
                [Attachments "attachments" "toolbay:plugin/attachments@"]
                    Attachments attachments: $crate::capability::attachment::AttachmentRule,
                    "attachments: `read`, `create`, or with a media type, `read image/*`";
                [Clock "clock" "wasi:clocks/wall-clock@" "wasi:clocks/system-clock@" "wasi:clocks/timezone@"]
                    Clock clock: $crate::capability::switch::SwitchRule, "the real clock";
                [Random "random" "wasi:random/random@" "wasi:random/insecure@"]
                    Random random: $crate::capability::switch::SwitchRule, "unpredictable bytes";
                [Invoke "invoke" "toolbay:plugin/tool-invoke@"]
                    Invoke invoke: $crate::capability::invoke_rule::InvokeRule,
                    "[calls of other tools](capabilities/invoke.md), by name, `files__read_file`, or by prefix, `files__*`";
            ]
            $($context)*
        }
    };
}

pub(crate) use kinds;

macro_rules! kinds_and_keys {
    ([$($([$Kind:ident $name:tt $($interface:tt)*])? $Key:ident $key:ident: $Rule:ty, $grants:tt;)*]) => {
        /// The kinds of capability in the contract.
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum CapabilityKind {
            $($(#[doc = $name] #[serde(rename = $name)] $Kind,)?)*
            /// A kind that this host does not know. It is always denied.
            #[serde(untagged)]
            Unknown(String),
        }

        impl CapabilityKind {
            /// All known kinds, each with the prefixes of the interfaces that use it.
            pub(crate) const INTERFACES: &[(Self, &[&str])] = &[$($((Self::$Kind, &[$($interface),*]),)?)*];

            /// Parses a kind as the contract writes it.
            #[must_use]
            pub fn parse(kind: &str) -> Self {
                match kind {
                    $($($name => Self::$Kind,)?)*
                    other => Self::Unknown(other.chars().take(64).collect()),
                }
            }

            /// The kind as the contract writes it.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $($(Self::$Kind => $name,)?)*
                    Self::Unknown(other) => other,
                }
            }
        }

        /// A policy key that grants something or narrows another key.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum GrantKey {
            $(#[doc = concat!("`", stringify!($key), "`")] $Key,)*
        }

        impl GrantKey {
            /// All keys, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$Key),*];

            /// The key as the policy writes it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$Key => stringify!($key),)* }
            }

            /// What the key grants, in the words of the documentation.
            #[must_use]
            pub const fn grants(self) -> &'static str {
                match self { $(Self::$Key => $grants,)* }
            }

            /// Whether it is a switch instead of a list.
            #[must_use]
            pub const fn is_switch(self) -> bool {
                match self { $(Self::$Key => <$Rule as GrantRule>::IS_SWITCH,)* }
            }

            /// The key that grants capabilities of a kind. `None` for unknown kinds.
            #[must_use]
            pub fn for_kind(kind: &CapabilityKind) -> Option<Self> {
                match kind {
                    $($(CapabilityKind::$Kind => Some(Self::$Key),)?)*
                    CapabilityKind::Unknown(_) => None,
                }
            }
        }
    };
}

kinds!(kinds_and_keys! {});

/// Calls a generic function with the rule type of a key: `by_rule!(key, function(arguments))`.
macro_rules! by_rule {
    (
        [$($([$($kind:tt)*])? $Key:ident $field:ident: $Rule:ty, $grants:tt;)*]
        ($key:expr) $function:ident $arguments:tt
    ) => {
        match $key { $($crate::capability::kind::GrantKey::$Key => $function::<$Rule> $arguments,)* }
    };
    ($key:expr, $function:ident($($argument:expr),*)) => {
        $crate::capability::kind::kinds!(by_rule! { ($key) $function ($($argument),*) })
    };
}

pub(crate) use by_rule;

impl CapabilityKind {
    /// Whether a tool with the capability can change something outside of the sandbox.
    #[must_use]
    pub const fn has_effects(&self) -> bool {
        match self {
            Self::FsWrite | Self::Net | Self::Process | Self::Kv | Self::Attachments => true,
            // Each nested call has its own start line in the audit.
            Self::Invoke
            | Self::FsRead
            | Self::Secret
            | Self::Env
            | Self::Clock
            | Self::Random
            | Self::Unknown(_) => false,
        }
    }
}

/// Returns why no operator could grant the target of a capability, or `None` if one could. Unknown kinds are not
/// checked.
pub(crate) fn unusable_target(kind: &CapabilityKind, target: &str) -> Option<String> {
    fn problem<R: GrantRule>(target: &str) -> Option<String> {
        R::check_target(target, Path::new("/workspace")).err()
    }
    let key = GrantKey::for_kind(kind).filter(|key| !key.is_switch())?;
    if target.trim().is_empty() {
        return Some("the target is empty: name what the tool wants to access".to_owned());
    }
    by_rule!(key, problem(target))
}
