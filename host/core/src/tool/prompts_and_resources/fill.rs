//! Filling of placeholders in one pass: inserted values are not scanned again.

use std::collections::BTreeMap;
use std::ops::Range;

use toolbay_policy::excerpt::one_line;

use super::{MAX_ARGUMENT_BYTES, MAX_FILLED_BYTES, MessageContent, Prompt, PromptMessage, ResourceTemplate};

/// Longest name of an argument, in bytes.
const MAX_NAME: usize = 64;

/// The reason why placeholders cannot be filled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FillError {
    /// A required argument is missing.
    #[error("argument `{0}` is missing")]
    Missing(String),
    /// An argument is unknown.
    #[error("unknown argument `{0}`")]
    Unknown(String),
    /// An argument is longer than [`MAX_ARGUMENT_BYTES`].
    #[error("argument `{0}` has more than {MAX_ARGUMENT_BYTES} bytes")]
    Long(String),
    /// The filled text is longer than [`MAX_FILLED_BYTES`].
    #[error("the text has more than {MAX_FILLED_BYTES} bytes with these arguments")]
    Large,
}

/// The placeholders of a text, `{{name}}` without white space, with their ranges and names.
pub(super) fn placeholders(text: &str) -> Vec<(Range<usize>, &str)> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text.get(from..).and_then(|rest| rest.find("{{")) {
        let start = from + at;
        match text.get(start + 2..).and_then(closed_name) {
            Some(name) => {
                from = start + name.len() + 4;
                found.push((start..from, name));
            }
            // Of three braces, the last two may start a placeholder.
            None => from = start + 1,
        }
    }
    found
}

/// The name before a closing `}}`. It scans at most the length of a name.
fn closed_name(inner: &str) -> Option<&str> {
    let end = inner.get(..inner.floor_char_boundary(MAX_NAME + 1))?.find('}')?;
    let (name, rest) = inner.split_at_checked(end)?;
    (is_name(name) && rest.starts_with("}}")).then_some(name)
}

/// Whether a text is a valid argument name.
pub(super) fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// Fills texts up to a total of [`MAX_FILLED_BYTES`].
struct Filler<'a> {
    given: &'a BTreeMap<String, String>,
    left: usize,
}

impl Filler<'_> {
    fn fill(&mut self, text: &str, show: impl Fn(&str) -> String) -> Result<String, FillError> {
        let mut out = String::new();
        let mut from = 0;
        for (range, name) in placeholders(text) {
            self.push(&mut out, text.get(from..range.start).unwrap_or_default())?;
            let value = self.given.get(name).map(|value| show(value)).unwrap_or_default();
            self.push(&mut out, &value)?;
            from = range.end;
        }
        self.push(&mut out, text.get(from..).unwrap_or_default())?;
        Ok(out)
    }

    fn push(&mut self, out: &mut String, part: &str) -> Result<(), FillError> {
        self.left = self.left.checked_sub(part.len()).ok_or(FillError::Large)?;
        out.push_str(part);
        Ok(())
    }
}

fn check_lengths(given: &BTreeMap<String, String>) -> Result<(), FillError> {
    match given.iter().find(|(_, value)| value.len() > MAX_ARGUMENT_BYTES) {
        Some((name, _)) => Err(FillError::Long(one_line(name, 64))),
        None => Ok(()),
    }
}

pub(super) fn fill_prompt(
    prompt: &Prompt,
    given: &BTreeMap<String, String>,
) -> Result<Vec<PromptMessage>, FillError> {
    let is_declared = |name: &String| prompt.arguments.iter().any(|argument| argument.name == *name);
    if let Some(unknown) = given.keys().find(|name| !is_declared(name)) {
        return Err(FillError::Unknown(one_line(unknown, 64)));
    }
    if let Some(argument) = prompt.missing_arguments(given).next() {
        return Err(FillError::Missing(argument.name.clone()));
    }
    check_lengths(given)?;
    let mut filler = Filler { given, left: MAX_FILLED_BYTES };
    let mut fill = |text: &str| filler.fill(text, str::to_owned);
    let mut messages = Vec::with_capacity(prompt.messages.len());
    for message in &prompt.messages {
        let content = match &message.content {
            MessageContent::Text { text } => MessageContent::Text { text: fill(text)? },
            MessageContent::Embedded { uri, mime_type, text } => {
                MessageContent::Embedded { uri: fill(uri)?, mime_type: mime_type.clone(), text: fill(text)? }
            }
            whole @ (MessageContent::Image { .. }
            | MessageContent::Audio { .. }
            | MessageContent::Resource { .. }
            | MessageContent::ResourceLink { .. }) => whole.clone(),
        };
        messages.push(PromptMessage { role: message.role, content });
    }
    Ok(messages)
}

pub(super) fn fill_template(
    template: &ResourceTemplate,
    values: &BTreeMap<String, String>,
) -> Result<String, FillError> {
    check_lengths(values)?;
    let json = template.mime_type.as_deref().is_some_and(|mime| {
        let mime = mime.split(';').next().unwrap_or_default().trim();
        mime == "application/json" || mime.ends_with("+json")
    });
    let show = |value: &str| match json {
        // Without the quotes, which the template has.
        true => {
            let quoted = serde_json::Value::from(value).to_string();
            quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned()
        }
        false => value.to_owned(),
    };
    Filler { given: values, left: MAX_FILLED_BYTES }.fill(&template.text, show)
}
