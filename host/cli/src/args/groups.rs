//! The groups of commands on the first help page. Clap has one list for all commands; a reader looks for a task.

use clap::Command;
use unicode_width::UnicodeWidthStr as _;

use crate::output;
use crate::output::table::wrap;

/// Columns of a help page that is not on a terminal.
const PIPE_WIDTH: usize = 100;
/// Most columns of a help page: longer lines are hard to read.
const MAX_WIDTH: usize = 100;
/// Spaces before the name of a command, and between it and its description.
const INDENT: usize = 2;

/// The groups with their commands, in the order of the help page.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Find and call tools",
        &["list", "search", "call", "batch", "output", "prompts", "resources", "schemas"],
    ),
    ("Decide what tools may do", &["explain", "grant", "revoke", "enable", "disable", "policy", "inspect"]),
    ("Serve tools, and bring in those of others", &["serve", "setup", "mcp", "openapi", "shared"]),
    ("Watch and operate", &["status", "ps", "cancel", "stop", "resume", "log", "kv", "backup", "restore"]),
    ("Plugins of registries", &["add", "fetch", "verify", "outdated", "update", "export", "import", "gc"]),
    (
        "Write plugins",
        &["new", "build", "test", "dev", "check", "diff", "docs", "pack", "push", "key", "bench"],
    ),
    ("The command itself", &["help", "man", "completions"]),
];

/// Shows the commands in groups. The commands stay as they are.
pub(super) fn add_to(mut command: Command) -> Command {
    // Adds clap's command `help`, which stands in a group, too.
    command.build();
    let list = group_list(&command, output::stdout_width().unwrap_or(PIPE_WIDTH).min(MAX_WIDTH));
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    // Clap's own list would repeat them.
    let command =
        names.into_iter().fold(command, |command, name| command.mut_subcommand(name, |sub| sub.hide(true)));
    command.override_usage("toolbay [OPTIONS] <COMMAND>").help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{{all-args}}{{after-help}}"
    ))
}

/// The groups as text.
fn group_list(command: &Command, width: usize) -> String {
    let names = GROUPS.iter().flat_map(|(_, names)| *names);
    let column = names.map(|name| name.width()).max().unwrap_or_default() + 2 * INDENT;
    let mut text = String::new();
    for (title, names) in GROUPS {
        text.push_str(&format!("{title}:\n"));
        for name in *names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let gap = " ".repeat(column.saturating_sub(INDENT + name.width()));
            let lines = wrap(&about, width.saturating_sub(column).max(20));
            let indent = format!("\n{}", " ".repeat(column));
            text.push_str(&format!("{}{name}{gap}{}\n", " ".repeat(INDENT), lines.join(&indent)));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn each_command_is_in_one_group() {
        let mut command = crate::args::Args::command();
        command.build();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        grouped.sort_unstable();
        let mut all: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        all.sort_unstable();
        assert_eq!(grouped, all);
    }
}
