//! Suggestions for mistyped commands and options. Clap compares letters regardless of their order, so that `lst` would
//! suggest `stop`; names of tools are compared by [`toolbay_policy::similar`], and so are these.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};
use toolbay_policy::similar::TypedName;

/// Replaces the suggestion of an error. `words` are those of the command line, without the program.
pub(super) fn improve<'a>(mut error: Error, root: &Command, words: impl Iterator<Item = &'a str>) -> Error {
    let (kind, suggested) = match error.kind() {
        ErrorKind::InvalidSubcommand => (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand),
        ErrorKind::UnknownArgument => (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        ErrorKind::InvalidValue => (ContextKind::InvalidValue, ContextKind::SuggestedValue),
        _ => return error,
    };
    let Some(wrong) = error.get(kind).and_then(text).map(str::to_owned) else { return error };
    let command = command_of(root, words, &wrong);
    let known: Vec<String> = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect()
        }
        ErrorKind::UnknownArgument => {
            let longs = command.get_arguments().chain(root.get_arguments()).filter_map(clap::Arg::get_long);
            longs.map(|long| format!("--{long}")).collect()
        }
        _ => match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(values)) => values.clone(),
            _ => Vec::new(),
        },
    };
    let near = TypedName::new(&wrong).nearest(known.iter().map(String::as_str));
    let nearest = near.first().map(|name| (*name).to_owned());
    error.remove(suggested);
    let Some(nearest) = nearest else { return error };
    let value = match suggested {
        ContextKind::SuggestedSubcommand => ContextValue::Strings(vec![nearest]),
        _ => ContextValue::String(nearest),
    };
    error.insert(suggested, value);
    error
}

fn text(value: &ContextValue) -> Option<&str> {
    match value {
        ContextValue::String(text) => Some(text),
        _ => None,
    }
}

/// The command that the words before the wrong one name.
fn command_of<'c, 'a>(root: &'c Command, words: impl Iterator<Item = &'a str>, wrong: &str) -> &'c Command {
    words
        .take_while(|word| *word != wrong)
        .fold(root, |command, word| command.find_subcommand(word).unwrap_or(command))
}

#[cfg(test)]
mod tests {
    use super::super::Args;

    #[test]
    fn the_most_similar_name_is_suggested() {
        for (words, suggested) in [
            (&["lst"][..], Some("'list'")),
            (&["inspct"], Some("'inspect'")),
            (&["policy", "chck"], Some("'check'")),
            (&["frobnicate"], None),
            (&["list", "--jsn"], Some("'--json'")),
            (&["list", "--proflie", "x"], Some("'--profile'")),
            (&["completions", "bsh"], Some("'bash'")),
        ] {
            let error = Args::parse_words(words.iter().copied()).unwrap_err().to_string();
            let tip = error.lines().find(|line| line.contains("tip:")).unwrap_or_default();
            assert_eq!(!tip.is_empty(), suggested.is_some(), "{words:?}: {error}");
            assert!(suggested.is_none_or(|name| tip.contains(name)), "{words:?}: {error}");
            assert!(!tip.contains("stop"), "{error}");
        }
    }
}
