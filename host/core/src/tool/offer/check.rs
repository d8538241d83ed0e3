//! What a document must be like. All of it is a guest's, so all of it is bounded before anything is made of it.

use std::collections::BTreeSet;

use toolbay_policy::name::ToolName;
use toolbay_policy::text::{first_hidden, one_line};

use super::fill::{gaps, is_name};
use super::{
    ALL_TOOLS, Argument, Content, Document, Icon, MAX_DESCRIPTION, MAX_ICON_BYTES, MAX_LABEL, MAX_PARTS,
    MAX_PATH, MAX_PROMPTS, MAX_RESOURCES, MAX_TEMPLATES, MAX_VALUE, MAX_VALUES, PathPattern, Prompt,
    Resource, Template, VERSION,
};

/// Kinds of pictures that run nothing: SVG may hold a script.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/webp", "image/gif"];
/// Most icons of one tool, and most sizes of one icon.
const MAX_ICONS: usize = 4;

type Checked = Result<(), String>;

pub(super) fn document(document: &Document) -> Checked {
    if document.version != VERSION {
        return Err(format!("it is of version {}; this host reads version {VERSION}", document.version));
    }
    few("prompts", document.prompts.len(), MAX_PROMPTS)?;
    few("resources", document.resources.len(), MAX_RESOURCES)?;
    few("templates", document.templates.len(), MAX_TEMPLATES)?;
    let mut names = BTreeSet::new();
    for prompt in &document.prompts {
        let called = |problem: String| format!("prompt `{}`: {problem}", one_line(&prompt.name, MAX_LABEL));
        ToolName::new(&prompt.name)
            .map_err(|_| called("its name is not of 1 to 48 of A-Z a-z 0-9 _ -".to_owned()))?;
        once(&mut names, &prompt.name).and_then(|()| self::prompt(prompt, document)).map_err(called)?;
    }
    let mut paths = BTreeSet::new();
    for one in &document.resources {
        let called = |problem: String| format!("resource `{}`: {problem}", one_line(&one.path, MAX_PATH));
        once(&mut paths, &one.path).and_then(|()| resource(one)).map_err(called)?;
    }
    for one in &document.templates {
        let called = |problem: String| format!("template `{}`: {problem}", one_line(&one.path, MAX_PATH));
        once(&mut paths, &one.path).and_then(|()| template(one)).map_err(called)?;
    }
    Ok(())
}

pub(super) fn icons(document: &Document, tools: &BTreeSet<&str>) -> Checked {
    for (tool, icons) in &document.icons {
        if tool != ALL_TOOLS && !tools.contains(tool.as_str()) {
            return Err(format!("it has icons for `{}`, which is no tool of it", one_line(tool, MAX_LABEL)));
        }
        few("icons of one tool", icons.len(), MAX_ICONS)?;
        icons.iter().try_for_each(icon)?;
    }
    let of = |tool: &str| document.icons.get(tool).or_else(|| document.icons.get(ALL_TOOLS));
    let bytes: usize = tools.iter().filter_map(|tool| of(tool)).flatten().map(|icon| icon.src.len()).sum();
    if bytes > MAX_ICON_BYTES {
        return Err(format!(
            "its icons add {bytes} bytes to a list of its {} tools; at most {MAX_ICON_BYTES} are taken",
            tools.len()
        ));
    }
    Ok(())
}

fn icon(icon: &Icon) -> Checked {
    few("sizes of an icon", icon.sizes.len(), MAX_ICONS)?;
    for size in &icon.sizes {
        let good = size.split_once('x').is_some_and(|(wide, high)| {
            [wide, high].iter().all(|n| (1..=5).contains(&n.len()) && n.bytes().all(|b| b.is_ascii_digit()))
        });
        if !good {
            return Err(format!("`{}` is no size of an icon, such as `48x48`", one_line(size, MAX_LABEL)));
        }
    }
    let parts = icon.src.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    match parts {
        Some((kind, data)) if PICTURES.contains(&kind) && is_base64(data) && !data.is_empty() => Ok(()),
        _ => Err(format!(
            "the `src` of an icon is `data:KIND;base64,…` with a KIND of {}: nothing is fetched, and nothing may run",
            PICTURES.join(", ")
        )),
    }
}

fn prompt(prompt: &Prompt, document: &Document) -> Checked {
    title(prompt.title.as_deref())?;
    text("description", &prompt.description, MAX_DESCRIPTION)?;
    if prompt.description.trim().is_empty() {
        return Err("it has no description: nobody could choose it".to_owned());
    }
    arguments(&prompt.arguments)?;
    few("messages", prompt.messages.len(), MAX_PARTS)?;
    if prompt.messages.is_empty() {
        return Err("it has no messages".to_owned());
    }
    let known = |name: &str| prompt.arguments.iter().any(|argument| argument.name == name);
    let filled = |text: &str| known_gaps(text, known);
    for message in &prompt.messages {
        match &message.content {
            Content::Text { text } => plain("a message", text).and_then(|()| filled(text))?,
            Content::Embedded { uri, mime_type, text } => {
                mime(mime_type.as_deref())?;
                plain("an address", uri).and_then(|()| filled(uri))?;
                plain("a message", text).and_then(|()| filled(text))?;
            }
            Content::Image { data, mime_type } | Content::Audio { data, mime_type } => {
                mime(Some(mime_type))?;
                base64(data)?;
            }
            Content::Resource { path } | Content::ResourceLink { path } => {
                if !document.resources.iter().any(|resource| resource.path == *path) {
                    let path = one_line(path, MAX_PATH);
                    return Err(format!("a message is about `{path}`, which is no resource of this plugin"));
                }
            }
        }
    }
    Ok(())
}

fn resource(resource: &Resource) -> Checked {
    path(&resource.path, false)?;
    label("name", &resource.name)?;
    resource.description.as_deref().map_or(Ok(()), |it| text("description", it, MAX_DESCRIPTION))?;
    mime(resource.mime_type.as_deref())?;
    match (&resource.text, &resource.blob) {
        (Some(text), None) => plain("its text", text),
        (None, Some(blob)) => base64(blob),
        (Some(_), Some(_)) | (None, None) => Err("it has one of `text` and `blob`".to_owned()),
    }
}

fn template(template: &Template) -> Checked {
    path(&template.path, true)?;
    label("name", &template.name)?;
    template.description.as_deref().map_or(Ok(()), |it| text("description", it, MAX_DESCRIPTION))?;
    mime(template.mime_type.as_deref())?;
    let pattern = PathPattern::parse(&template.path)?;
    if pattern.names().next().is_none() {
        return Err("its path has no gap `{…}`; what has none is a resource".to_owned());
    }
    let known = |name: &str| pattern.names().any(|gap| gap == name);
    arguments(&template.arguments)?;
    if let Some(argument) = template.arguments.iter().find(|argument| !known(&argument.name)) {
        return Err(format!("its path has no gap `{{{}}}`", argument.name));
    }
    plain("its text", &template.text)?;
    known_gaps(&template.text, known)
}

fn arguments(arguments: &[Argument]) -> Checked {
    few("arguments", arguments.len(), MAX_PARTS)?;
    let mut names = BTreeSet::new();
    for argument in arguments {
        let called = |problem: String| format!("argument `{}`: {problem}", one_line(&argument.name, 64));
        if !is_name(&argument.name) {
            return Err(called("its name is no identifier of at most 64 characters".to_owned()));
        }
        once(&mut names, &argument.name).map_err(called)?;
        title(argument.title.as_deref()).map_err(called)?;
        if let Some(description) = &argument.description {
            text("description", description, MAX_DESCRIPTION).map_err(called)?;
        }
        few("values", argument.values.len(), MAX_VALUES).map_err(called)?;
        argument.values.iter().try_for_each(|value| text("value", value, MAX_VALUE)).map_err(called)?;
    }
    Ok(())
}

fn known_gaps(text: &str, known: impl Fn(&str) -> bool) -> Checked {
    match gaps(text).into_iter().find(|(_, name)| !known(name)) {
        Some((_, name)) => Err(format!("it says `{{{{{name}}}}}`, which is no argument of it")),
        None => Ok(()),
    }
}

fn few(what: &str, count: usize, most: usize) -> Checked {
    match count > most {
        true => Err(format!("it has {count} {what}; at most {most} are taken")),
        false => Ok(()),
    }
}

fn once<'a>(seen: &mut BTreeSet<&'a str>, name: &'a str) -> Checked {
    match seen.insert(name) {
        true => Ok(()),
        false => Err("there are two of this name".to_owned()),
    }
}

fn title(title: Option<&str>) -> Checked {
    title.map_or(Ok(()), |title| label("title", title))
}

/// One line, with something on it.
fn label(what: &str, value: &str) -> Checked {
    if value.trim().is_empty() || value.contains(['\n', '\r']) {
        return Err(format!("its {what} is not one line of text"));
    }
    text(what, value, MAX_LABEL)
}

fn text(what: &str, value: &str, most: usize) -> Checked {
    let count = value.chars().count();
    if count > most {
        return Err(format!("its {what} has {count} characters; at most {most} are taken"));
    }
    plain(&format!("its {what}"), value)
}

/// Without what a terminal obeys or a reader does not see.
fn plain(what: &str, value: &str) -> Checked {
    match first_hidden(value) {
        Some(c) => Err(format!("{what} holds the character U+{:04X}, which is not seen", u32::from(c))),
        None => Ok(()),
    }
}

/// Steps of letters, digits and `-._~`, as in `guide/style.md`; none of them `.` or `..`.
fn path(path: &str, gaps: bool) -> Checked {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b) || (gaps && b"{}".contains(&b));
    let good = path.len() <= MAX_PATH
        && path
            .split('/')
            .all(|step| !step.is_empty() && step != "." && step != ".." && step.bytes().all(legal));
    good.then_some(()).ok_or_else(|| {
        format!(
            "its path is not of at most {MAX_PATH} characters, with steps of A-Z a-z 0-9 - . _ ~ between single `/`"
        )
    })
}

fn mime(mime: Option<&str>) -> Checked {
    let Some(mime) = mime else { return Ok(()) };
    let good = mime.len() <= MAX_LABEL
        && mime.split_once('/').is_some_and(|(kind, rest)| !kind.is_empty() && !rest.is_empty())
        && mime.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
    let shown = || format!("`{}` is no kind of file, such as `text/plain`", one_line(mime, MAX_LABEL));
    good.then_some(()).ok_or_else(shown)
}

fn base64(data: &str) -> Checked {
    is_base64(data).then_some(()).ok_or_else(|| "its bytes are not in base64".to_owned())
}

/// Whether clients can read it: the standard alphabet, with padding, without white space.
fn is_base64(data: &str) -> bool {
    let bare = data.trim_end_matches('=');
    data.len().is_multiple_of(4)
        && data.len() - bare.len() <= 2
        && bare.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
}

/// Bytes behind a text in base64.
pub(super) fn decoded_len(data: &str) -> usize {
    data.trim_end_matches('=').len() * 3 / 4
}
