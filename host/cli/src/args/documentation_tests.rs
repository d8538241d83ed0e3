//! Compares `docs/reference/cli.md` with the command line.

use std::collections::BTreeMap;

use clap::{Arg, Command, CommandFactory as _};

use super::Args;

const PAGE: &str = include_str!("../../../../docs/reference/cli.md");
/// The section with the options that every command has.
const COMMON: &str = "Common options";

/// The sections of the page. A heading names one command or several: `enable, disable`.
fn sections() -> BTreeMap<&'static str, &'static str> {
    let sections = PAGE.split("\n## ").skip(1).filter_map(|section| section.split_once('\n'));
    sections.flat_map(|(heading, text)| heading.split(", ").map(move |name| (name, text))).collect()
}

/// Whether a section shows an option, alone or with its value: `--head N`.
fn shows(section: &str, option: &str) -> bool {
    section.split(&format!("`--{option}")).skip(1).any(|rest| rest.starts_with(['`', ' ', '[']))
}

/// The options that help pages show, without clap's own.
fn options(command: &Command) -> impl Iterator<Item = &str> {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    shown.filter_map(Arg::get_long).filter(|option| *option != "help")
}

/// The options of a command and of those below it that its section lacks.
fn missing(command: &Command, path: &str, section: &str, common: &[&str], found: &mut Vec<String>) {
    let own = options(command).filter(|option| !common.contains(option));
    found.extend(own.filter(|option| !shows(section, option)).map(|option| format!("{path} --{option}")));
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        missing(below, &format!("{path} {}", below.get_name()), section, common, found);
    }
}

#[test]
fn each_option_is_in_the_section_of_its_command() {
    let mut toolbay = Args::command();
    // Gives commands the options of those above them.
    toolbay.build();
    let (mut sections, mut found) = (sections(), Vec::new());
    let common: Vec<&str> = options(&toolbay).collect();
    let page = sections.remove(COMMON).unwrap();
    found.extend(common.iter().filter(|option| !shows(page, option)).map(|option| format!("--{option}")));
    for command in toolbay.get_subcommands().filter(|command| !command.is_hide_set()) {
        match (command.get_name(), sections.remove(command.get_name())) {
            ("help", _) => {}
            (name, None) => found.push(format!("{name}: no section")),
            (name, Some(section)) => missing(command, name, section, &common, &mut found),
        }
    }
    assert_eq!(found, [""; 0]);
    assert!(sections.is_empty(), "no commands: {:?}", sections.keys());
}
