//! The configuration file of each client and its format.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use serde_json::{Value, json};

use super::{ServerCommand, merge};

/// An MCP client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientKind {
    ClaudeDesktop,
    ClaudeCode,
    Vscode,
    Cursor,
    Zed,
    Codex,
}

impl ClientKind {
    pub(super) fn display_name(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "Claude Desktop",
            Self::ClaudeCode => "Claude Code",
            Self::Vscode => "Visual Studio Code",
            Self::Cursor => "Cursor",
            Self::Zed => "Zed",
            Self::Codex => "Codex",
        }
    }

    /// The file with its servers; `working_dir` is the project.
    pub(super) fn file(self, working_dir: &Path) -> Result<PathBuf> {
        let home =
            std::env::home_dir().ok_or_else(|| anyhow!("there is no home directory: give --file FILE"))?;
        let given = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
        let config = given.unwrap_or_else(|| home.join(".config"));
        let support = home.join("Library/Application Support");
        let mac = cfg!(target_os = "macos");
        Ok(match self {
            Self::ClaudeDesktop if mac => support.join("Claude/claude_desktop_config.json"),
            Self::ClaudeDesktop => config.join("Claude/claude_desktop_config.json"),
            Self::ClaudeCode => working_dir.join(".mcp.json"),
            Self::Vscode => working_dir.join(".vscode/mcp.json"),
            Self::Cursor => home.join(".cursor/mcp.json"),
            Self::Zed => config.join("zed/settings.json"),
            Self::Codex => {
                let own = std::env::var_os("CODEX_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
                own.unwrap_or_else(|| home.join(".codex")).join("config.toml")
            }
        })
    }

    /// The key of the servers in its file.
    fn key(self) -> &'static str {
        match self {
            Self::ClaudeDesktop | Self::ClaudeCode | Self::Cursor => "mcpServers",
            Self::Vscode => "servers",
            Self::Zed => "context_servers",
            Self::Codex => "mcp_servers",
        }
    }

    /// The entry for this program.
    pub(super) fn entry(self, start: &ServerCommand) -> Value {
        let (command, args) = (&start.command, start.args());
        match self {
            Self::ClaudeDesktop | Self::Cursor | Self::Codex => json!({"command": command, "args": args}),
            Self::ClaudeCode | Self::Vscode => json!({"type": "stdio", "command": command, "args": args}),
            Self::Zed => json!({"source": "custom", "command": command, "args": args, "env": {}}),
        }
    }

    /// Merges the entry into the text of its file and preserves everything else.
    ///
    /// # Errors
    /// The text cannot be parsed.
    pub(super) fn merged(self, text: &str, name: &str, entry: &Value) -> Result<String> {
        match self {
            Self::Codex => merge::toml(text, self.key(), name, entry),
            Self::ClaudeDesktop | Self::ClaudeCode | Self::Vscode | Self::Cursor | Self::Zed => {
                merge::json(text, self.key(), name, entry)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [ClientKind; 6] = [
        ClientKind::ClaudeDesktop,
        ClientKind::ClaudeCode,
        ClientKind::Vscode,
        ClientKind::Cursor,
        ClientKind::Zed,
        ClientKind::Codex,
    ];

    #[test]
    fn merging_preserves_other_entries_and_is_idempotent() {
        let start = ServerCommand { command: "/bin/toolbay".to_owned(), args: vec!["serve".to_owned()] };
        let other = ServerCommand { command: "/other/toolbay".to_owned(), args: Vec::new() };
        for client in ALL {
            let fresh = client.merged("", "toolbay", &client.entry(&start)).unwrap();
            assert!(fresh.contains("/bin/toolbay") && fresh.contains(client.key()), "{client:?}: {fresh}");
            assert_eq!(client.merged(&fresh, "toolbay", &client.entry(&start)).unwrap(), fresh, "{client:?}");
            let both = client.merged(&fresh, "second", &client.entry(&other)).unwrap();
            assert!(both.contains("/bin/toolbay") && both.contains("/other/toolbay"), "{client:?}: {both}");
            let changed = client.merged(&both, "toolbay", &client.entry(&other)).unwrap();
            assert!(!changed.contains("/bin/toolbay"), "{client:?}: {changed}");
        }
    }
}
