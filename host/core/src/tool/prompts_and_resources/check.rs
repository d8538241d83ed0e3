//! Checks of a document. It comes from a guest, so the host checks all of it before using any part.

use std::collections::BTreeSet;

use toolbay_policy::excerpt::one_line;
use toolbay_policy::hidden_chars::first_hidden;
use toolbay_policy::name::ToolName;

use super::fill::{is_name, placeholders};
use super::{
    ALL_TOOLS, DocumentArgument, Icon, MAX_DESCRIPTION, MAX_ICON_BYTES, MAX_LABEL, MAX_PARTS, MAX_PATH,
    MAX_PROMPTS, MAX_RESOURCES, MAX_TEMPLATES, MAX_VALUE, MAX_VALUES, MessageContent, PathPattern, Prompt,
    PromptsAndResourcesDocument, Resource, ResourceTemplate, VERSION,
};

/// Image types without scripts. SVG may contain scripts.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/webp", "image/gif"];
/// Most icons of one tool, and most sizes of one icon.
const MAX_ICONS: usize = 4;

pub(super) fn check_document(document: &PromptsAndResourcesDocument) -> Result<(), String> {
    if document.version != VERSION {
        return Err(format!("it has version {}; this host reads version {VERSION}", document.version));
    }
    check_count("prompts", document.prompts.len(), MAX_PROMPTS)?;
    check_count("resources", document.resources.len(), MAX_RESOURCES)?;
    check_count("templates", document.templates.len(), MAX_TEMPLATES)?;
    let mut names = BTreeSet::new();
    for prompt in &document.prompts {
        let called = |problem: String| format!("prompt `{}`: {problem}", one_line(&prompt.name, MAX_LABEL));
        ToolName::new(&prompt.name)
            .map_err(|_| called("its name must have 1 to 48 characters of A-Z a-z 0-9 _ -".to_owned()))?;
        check_unique(&mut names, &prompt.name)
            .and_then(|()| self::check_prompt(prompt, document))
            .map_err(called)?;
    }
    let mut paths = BTreeSet::new();
    for one in &document.resources {
        let called = |problem: String| format!("resource `{}`: {problem}", one_line(&one.path, MAX_PATH));
        check_unique(&mut paths, &one.path).and_then(|()| check_resource(one)).map_err(called)?;
    }
    for one in &document.templates {
        let called = |problem: String| format!("template `{}`: {problem}", one_line(&one.path, MAX_PATH));
        check_unique(&mut paths, &one.path).and_then(|()| check_template(one)).map_err(called)?;
    }
    Ok(())
}

pub(super) fn check_icons(
    document: &PromptsAndResourcesDocument,
    tools: &BTreeSet<&str>,
) -> Result<(), String> {
    for (tool, icons) in &document.icons {
        if tool != ALL_TOOLS && !tools.contains(tool.as_str()) {
            return Err(format!(
                "it has icons for `{}`, but no tool of this name",
                one_line(tool, MAX_LABEL)
            ));
        }
        check_count("icons of one tool", icons.len(), MAX_ICONS)?;
        icons.iter().try_for_each(check_icon)?;
    }
    let icons_of = |tool: &str| document.icons.get(tool).or_else(|| document.icons.get(ALL_TOOLS));
    let bytes: usize =
        tools.iter().filter_map(|tool| icons_of(tool)).flatten().map(|icon| icon.src.len()).sum();
    if bytes > MAX_ICON_BYTES {
        return Err(format!(
            "its icons add {bytes} bytes to the list of its {} tools; the limit is {MAX_ICON_BYTES} bytes",
            tools.len()
        ));
    }
    Ok(())
}

fn check_icon(icon: &Icon) -> Result<(), String> {
    check_count("sizes of an icon", icon.sizes.len(), MAX_ICONS)?;
    for size in &icon.sizes {
        let is_valid = size.split_once('x').is_some_and(|(wide, high)| {
            [wide, high].iter().all(|n| (1..=5).contains(&n.len()) && n.bytes().all(|b| b.is_ascii_digit()))
        });
        if !is_valid {
            return Err(format!("`{}` is not an icon size such as `48x48`", one_line(size, MAX_LABEL)));
        }
    }
    let parts = icon.src.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    match parts {
        Some((kind, data)) if IMAGE_TYPES.contains(&kind) && is_base64(data) && !data.is_empty() => Ok(()),
        _ => Err(format!(
            "the `src` of an icon must be `data:TYPE;base64,…` with one of the types {}",
            IMAGE_TYPES.join(", ")
        )),
    }
}

fn check_prompt(prompt: &Prompt, document: &PromptsAndResourcesDocument) -> Result<(), String> {
    check_title(prompt.title.as_deref())?;
    check_text("description", &prompt.description, MAX_DESCRIPTION)?;
    if prompt.description.trim().is_empty() {
        return Err("it has no description; people need one to choose the prompt".to_owned());
    }
    check_arguments(&prompt.arguments)?;
    check_count("messages", prompt.messages.len(), MAX_PARTS)?;
    if prompt.messages.is_empty() {
        return Err("it has no messages".to_owned());
    }
    let is_declared = |name: &str| prompt.arguments.iter().any(|argument| argument.name == name);
    let filled = |text: &str| check_placeholders(text, is_declared);
    for message in &prompt.messages {
        match &message.content {
            MessageContent::Text { text } => check_visible("a message", text).and_then(|()| filled(text))?,
            MessageContent::Embedded { uri, mime_type, text } => {
                check_mime(mime_type.as_deref())?;
                check_visible("an address", uri).and_then(|()| filled(uri))?;
                check_visible("a message", text).and_then(|()| filled(text))?;
            }
            MessageContent::Image { data, mime_type } | MessageContent::Audio { data, mime_type } => {
                check_mime(Some(mime_type))?;
                check_base64(data)?;
            }
            MessageContent::Resource { path } | MessageContent::ResourceLink { path } => {
                if !document.resources.iter().any(|resource| resource.path == *path) {
                    let path = one_line(path, MAX_PATH);
                    return Err(format!(
                        "a message refers to `{path}`, which is not a resource of this plugin"
                    ));
                }
            }
        }
    }
    Ok(())
}

fn check_resource(resource: &Resource) -> Result<(), String> {
    check_path(&resource.path, false)?;
    check_label("name", &resource.name)?;
    resource.description.as_deref().map_or(Ok(()), |it| check_text("description", it, MAX_DESCRIPTION))?;
    check_mime(resource.mime_type.as_deref())?;
    match (&resource.text, &resource.blob) {
        (Some(text), None) => check_visible("its text", text),
        (None, Some(blob)) => check_base64(blob),
        (Some(_), Some(_)) | (None, None) => Err("it must have either `text` or `blob`".to_owned()),
    }
}

fn check_template(template: &ResourceTemplate) -> Result<(), String> {
    check_path(&template.path, true)?;
    check_label("name", &template.name)?;
    template.description.as_deref().map_or(Ok(()), |it| check_text("description", it, MAX_DESCRIPTION))?;
    check_mime(template.mime_type.as_deref())?;
    let pattern = PathPattern::parse(&template.path)?;
    if pattern.names().next().is_none() {
        return Err("its path has no placeholder `{…}`; without one, declare a resource".to_owned());
    }
    let is_placeholder = |name: &str| pattern.names().any(|gap| gap == name);
    check_arguments(&template.arguments)?;
    if let Some(argument) = template.arguments.iter().find(|argument| !is_placeholder(&argument.name)) {
        return Err(format!("its path has no placeholder `{{{}}}`", argument.name));
    }
    check_visible("its text", &template.text)?;
    check_placeholders(&template.text, is_placeholder)
}

fn check_arguments(arguments: &[DocumentArgument]) -> Result<(), String> {
    check_count("arguments", arguments.len(), MAX_PARTS)?;
    let mut names = BTreeSet::new();
    for argument in arguments {
        let called = |problem: String| format!("argument `{}`: {problem}", one_line(&argument.name, 64));
        if !is_name(&argument.name) {
            return Err(called("its name is not an identifier of at most 64 characters".to_owned()));
        }
        check_unique(&mut names, &argument.name).map_err(called)?;
        check_title(argument.title.as_deref()).map_err(called)?;
        if let Some(description) = &argument.description {
            check_text("description", description, MAX_DESCRIPTION).map_err(called)?;
        }
        check_count("values", argument.values.len(), MAX_VALUES).map_err(called)?;
        argument.values.iter().try_for_each(|value| check_text("value", value, MAX_VALUE)).map_err(called)?;
    }
    Ok(())
}

fn check_placeholders(text: &str, known: impl Fn(&str) -> bool) -> Result<(), String> {
    match placeholders(text).into_iter().find(|(_, name)| !known(name)) {
        Some((_, name)) => Err(format!("it uses `{{{{{name}}}}}`, which is not one of its arguments")),
        None => Ok(()),
    }
}

fn check_count(what: &str, count: usize, most: usize) -> Result<(), String> {
    match count > most {
        true => Err(format!("it has {count} {what}; the limit is {most}")),
        false => Ok(()),
    }
}

fn check_unique<'a>(seen: &mut BTreeSet<&'a str>, name: &'a str) -> Result<(), String> {
    match seen.insert(name) {
        true => Ok(()),
        false => Err("the name is used twice".to_owned()),
    }
}

fn check_title(title: Option<&str>) -> Result<(), String> {
    title.map_or(Ok(()), |title| check_label("title", title))
}

/// Checks a text of one line that is not blank.
fn check_label(what: &str, value: &str) -> Result<(), String> {
    if value.trim().is_empty() || value.contains(['\n', '\r']) {
        return Err(format!("its {what} must be one line of text"));
    }
    check_text(what, value, MAX_LABEL)
}

fn check_text(what: &str, value: &str, most: usize) -> Result<(), String> {
    let count = value.chars().count();
    if count > most {
        return Err(format!("its {what} has {count} characters; the limit is {most}"));
    }
    check_visible(&format!("its {what}"), value)
}

/// Refuses control characters and invisible characters.
fn check_visible(what: &str, value: &str) -> Result<(), String> {
    match first_hidden(value) {
        Some(c) => Err(format!("{what} has the invisible character U+{:04X}", u32::from(c))),
        None => Ok(()),
    }
}

/// Checks a path: segments of letters, digits and `-._~`, as in `guide/style.md`, except for `.` and `..`.
fn check_path(path: &str, gaps: bool) -> Result<(), String> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b) || (gaps && b"{}".contains(&b));
    let is_valid = path.len() <= MAX_PATH
        && path
            .split('/')
            .all(|step| !step.is_empty() && step != "." && step != ".." && step.bytes().all(legal));
    is_valid.then_some(()).ok_or_else(|| {
        format!(
            "its path must have at most {MAX_PATH} characters, in segments of A-Z a-z 0-9 - . _ ~ separated by \
             single `/`"
        )
    })
}

fn check_mime(mime: Option<&str>) -> Result<(), String> {
    let Some(mime) = mime else { return Ok(()) };
    let is_valid = mime.len() <= MAX_LABEL
        && mime.split_once('/').is_some_and(|(kind, rest)| !kind.is_empty() && !rest.is_empty())
        && mime.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
    let shown = || format!("`{}` is not a media type such as `text/plain`", one_line(mime, MAX_LABEL));
    is_valid.then_some(()).ok_or_else(shown)
}

fn check_base64(data: &str) -> Result<(), String> {
    is_base64(data).then_some(()).ok_or_else(|| "its data is not valid base64".to_owned())
}

/// Whether a text is base64 with the standard alphabet and padding, without white space.
fn is_base64(data: &str) -> bool {
    let bare = data.trim_end_matches('=');
    data.len().is_multiple_of(4)
        && data.len() - bare.len() <= 2
        && bare.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
}

/// The number of bytes that a base64 text decodes to.
pub(super) fn decoded_len(data: &str) -> usize {
    data.trim_end_matches('=').len() * 3 / 4
}
