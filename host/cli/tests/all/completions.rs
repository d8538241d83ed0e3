//! Completions for shells, as the script of `toolbay completions` asks for them.

use std::process::Command;

use crate::fixture::HostFolder;

/// The candidates for the last word, in the form for bash.
fn candidates(folder: &HostFolder, command: Command, words: &[&str]) -> Vec<String> {
    let mut command = folder.prepare(command);
    command.env("TOOLBAY_COMPLETE", "bash").env("_CLAP_IFS", "\n");
    command.env("_CLAP_COMPLETE_INDEX", (words.len()).to_string()).args(["--", "toolbay"]).args(words);
    let output = command.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(ToOwned::to_owned).collect()
}

fn toolbay() -> Command {
    Command::new(env!("CARGO_BIN_EXE_toolbay"))
}

#[test]
fn names_of_plugins_and_tools_are_candidates_after_a_load() {
    let folder = HostFolder::new("").with_plugin("text", guest_artifacts::PLUGIN_TEXT);
    assert_eq!(candidates(&folder, toolbay(), &["call", "text__w"]), Vec::<String>::new());
    folder.good(&["list"]);
    assert_eq!(candidates(&folder, toolbay(), &["call", "text__w"]), ["text__word_count"]);
    assert_eq!(candidates(&folder, toolbay(), &["inspect", "te"]), ["text"]);
    assert_eq!(candidates(&folder, toolbay(), &["disable", "--namespace", "te"]), ["text"]);
    assert!(candidates(&folder, toolbay(), &["gra"]).contains(&"grant".to_owned()));

    // The options of the line count, too.
    let other = HostFolder::new("").with_plugin("other", guest_artifacts::PLUGIN_TEXT);
    other.good(&["list"]);
    let plugins = other.path("plugins").display().to_string();
    let words = ["--plugins", &plugins, "explain", "other__word_c"];
    assert_eq!(candidates(&folder, toolbay(), &words), ["other__word_count"]);
}

#[test]
fn a_completion_loads_and_writes_nothing() {
    let folder = HostFolder::new("nonsense = ").with_plugin("text", guest_artifacts::PLUGIN_TEXT);
    let mut command = toolbay();
    let cache = folder.path("cache");
    let words = ["--cache-dir", cache.to_str().unwrap(), "call", "te"];
    command.current_dir(folder.path(""));
    assert_eq!(candidates(&folder, command, &words), Vec::<String>::new());
    assert!(!cache.exists() && !folder.path("state").exists());
}

#[test]
fn each_shell_has_a_script_that_asks_the_program() {
    let folder = HostFolder::new("");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = folder.good(&["completions", shell]);
        assert!(script.contains("TOOLBAY_COMPLETE") && script.contains(shell), "{shell}: {script}");
    }
}
