//! The kinds of capability, and the keys of a policy that grant them: one table for both.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::rule::GrantRule;

/// Calls a macro with the table of kinds. An entry is
///
/// ```text
/// [Kind "name in the contract" "an interface that reaches it" …] Key key: RuleType, "what it grants";
/// ```
///
/// The first part is absent where a key narrows what another one grants. Interfaces are written as their names begin. A kind is this entry, its type of rules and the
/// place that enforces it.
macro_rules! kinds {
    ($callback:ident! { $($context:tt)* }) => {
        $callback! {
            [
                [FsRead "fs-read" "toolbay:plugin/files@" "wasi:filesystem/"]
                    FsRead fs_read: $crate::capability::path_rule::PathRule, "files to read";
                [FsWrite "fs-write" "toolbay:plugin/files@" "wasi:filesystem/"]
                    FsWrite fs_write: $crate::capability::path_rule::PathRule, "files to write; gives no reading";
                [Net "net" "toolbay:plugin/http-client@" "wasi:http/" "wasi:sockets/"]
                    Net net: $crate::capability::net::NetRule,
                    "requests and connections: methods, scheme, host, port and path";
                NetPrivate net_private: ::ipnet::IpNet,
                    "private networks that those connections may lead to, `10.1.0.0/16`; without it public addresses only";
                [Process "process" "toolbay:plugin/process@"]
                    Process process: $crate::capability::program::ProgramRule,
                    "programs of `[programs]`, with patterns for their arguments";
                [Secret "secret" "toolbay:plugin/secrets@"]
                    Secrets secrets: $crate::capability::secret::SecretRule,
                    "credentials of `[secrets]`, by name";
                [Kv "kv" "toolbay:plugin/kv@"] Kv kv: $crate::capability::kv::KvScope,
                    "scopes in which state is kept: `tool`, `plugin`, `session`, `agent`";
                [Env "env" "wasi:cli/environment@"]
                    Env env: $crate::capability::environment::EnvRule,
                    "environment variables, `TZ` with the host's value or `TZ=UTC` with this one";
                [Attachments "attachments" "toolbay:plugin/attachments@"]
                    Attachments attachments: $crate::capability::attachment::AttachmentRule,
                    "attachments, `read`, `create`, or with a media type, `read image/*`";
                [Clock "clock" "wasi:clocks/wall-clock@" "wasi:clocks/timezone@"]
                    Clock clock: $crate::capability::switch::SwitchRule, "the real clock";
                [Random "random" "wasi:random/random@" "wasi:random/insecure@"]
                    Random random: $crate::capability::switch::SwitchRule, "unpredictable bytes";
                [Invoke "invoke" "toolbay:plugin/tool-invoke@"]
                    Invoke invoke: $crate::capability::invoke_rule::InvokeRule,
                    "[calls of other tools](capabilities/invoke.md), by name, `files__read_file`, or how names begin, `files__*`";
            ]
            $($context)*
        }
    };
}

pub(crate) use kinds;

macro_rules! kinds_and_keys {
    ([$($([$Kind:ident $name:tt $($interface:tt)*])? $Key:ident $key:ident: $Rule:ty, $grants:tt;)*]) => {
        /// The kinds of capability of the contract.
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum CapabilityKind {
            $($(#[doc = $name] #[serde(rename = $name)] $Kind,)?)*
            /// A kind this host does not know; always denied.
            #[serde(untagged)]
            Unknown(String),
        }

        impl CapabilityKind {
            /// All that this host knows, each with the interfaces that reach it, by how their names begin.
            pub(crate) const INTERFACES: &[(Self, &[&str])] = &[$($((Self::$Kind, &[$($interface),*]),)?)*];

            /// Reads a kind as the contract writes it.
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

        /// A key of the policy that grants something, or narrows what another one grants.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum GrantKey {
            $(#[doc = concat!("`", stringify!($key), "`")] $Key,)*
        }

        impl GrantKey {
            /// All of them, in the order of the policy's pages.
            pub const ALL: &'static [Self] = &[$(Self::$Key),*];

            /// The key as it stands in the policy.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$Key => stringify!($key),)* }
            }

            /// What it grants, in the words of the documentation.
            #[must_use]
            pub const fn grants(self) -> &'static str {
                match self { $(Self::$Key => $grants,)* }
            }

            /// Whether it is a switch and not a list.
            #[must_use]
            pub const fn is_switch(self) -> bool {
                match self { $(Self::$Key => <$Rule as GrantRule>::IS_SWITCH,)* }
            }

            /// The key that grants capabilities of a kind; `None` if none does.
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

/// Calls a generic function for the type of the rules of a key: `by_rule!(key, function(arguments))`.
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

/// Why the target of a declared capability is of no use; `None`: an operator can grant it. Kinds that this host
/// does not know are not judged.
pub(crate) fn unusable_target(kind: &CapabilityKind, target: &str) -> Option<String> {
    fn problem<R: GrantRule>(target: &str) -> Option<String> {
        R::check_target(target, Path::new("/workspace")).err()
    }
    let key = GrantKey::for_kind(kind).filter(|key| !key.is_switch())?;
    if target.trim().is_empty() {
        return Some("the target is empty: say what the tool wants to reach".to_owned());
    }
    by_rule!(key, problem(target))
}
