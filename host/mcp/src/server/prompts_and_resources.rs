//! Prompts and resources on the wire, of what plugins and the embedder offer beside tools.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rmcp::model::{
    ArgumentInfo, AudioContent, CompletionInfo, ContentBlock, EmbeddedResource, ErrorData, Icon,
    ImageContent, JsonObject, Prompt, PromptArgument, PromptMessage, Reference, Resource, ResourceContents,
    ResourceTemplate, Role,
};
use serde_json::{Value, json};
use toolbay_core::call::dialog::{Ask, AskKind};
use toolbay_core::registry::view::View;
use toolbay_core::tool::content;
use toolbay_core::tool::offer::{self, Argument, Content, FillError, Offers};
use toolbay_policy::text::one_line;

/// Longest name or address that an error repeats, in characters.
const MAX_NAME: usize = 200;
/// The key of the question for arguments that are missing.
const ARGUMENTS: &str = "toolbay/arguments";

/// All prompts of a view, in the order of their names.
pub(crate) fn prompts(view: &View) -> BTreeMap<String, Prompt> {
    let all = view.offers();
    let all = all.iter().flat_map(|offers| &offers.prompts);
    all.map(|(name, prompt)| (name.clone(), shown(name, prompt))).collect()
}

fn shown(name: &str, prompt: &offer::Prompt) -> Prompt {
    let argument = |argument: &Argument| {
        let mut shown = PromptArgument::new(argument.name.clone());
        shown.title.clone_from(&argument.title);
        shown.description.clone_from(&argument.description);
        shown.required = Some(argument.required);
        shown
    };
    let arguments: Vec<_> = prompt.arguments.iter().map(argument).collect();
    let arguments = (!arguments.is_empty()).then_some(arguments);
    let mut shown = Prompt::new(name, Some(prompt.description.clone()), arguments);
    shown.title.clone_from(&prompt.title);
    shown
}

/// A prompt of a view, with whose it is.
pub(crate) fn prompt<'v>(view: &'v View, name: &str) -> Result<(&'v Offers, &'v offer::Prompt), ErrorData> {
    let found = view.offers().into_iter().find_map(|offers| Some((&**offers, offers.prompts.get(name)?)));
    found.ok_or_else(|| {
        ErrorData::invalid_params(format!("Unknown prompt: {}", one_line(name, MAX_NAME)), None)
    })
}

/// The arguments of a request: texts, as the protocol wants them.
pub(crate) fn given(arguments: Option<JsonObject>) -> Result<BTreeMap<String, String>, ErrorData> {
    let text = |(name, value): (String, Value)| match value {
        Value::String(text) => Ok((name, text)),
        _ => {
            let text = format!("argument `{}` is no text", one_line(&name, MAX_NAME));
            Err(ErrorData::invalid_params(text, None))
        }
    };
    arguments.into_iter().flatten().map(text).collect()
}

/// What a person is asked who has left arguments out; `None`: none is missing.
pub(crate) fn question(prompt: &offer::Prompt, given: &BTreeMap<String, String>) -> Option<Ask> {
    let missing: Vec<&Argument> = prompt.missing(given).collect();
    if missing.is_empty() {
        return None;
    }
    let field = |argument: &&Argument| {
        let mut field = json!({"type": "string"});
        for (key, text) in [("title", &argument.title), ("description", &argument.description)] {
            if let (Some(text), Some(field)) = (text, field.as_object_mut()) {
                field.insert(key.to_owned(), Value::from(text.as_str()));
            }
        }
        (argument.name.clone(), field)
    };
    let names: Vec<&str> = missing.iter().map(|argument| argument.name.as_str()).collect();
    let properties: serde_json::Map<_, _> = missing.iter().map(field).collect();
    let title = prompt.title.as_deref().unwrap_or(&prompt.name);
    let params = json!({
        "message": format!("{title}: {}", prompt.description),
        "requestedSchema": {"type": "object", "properties": properties, "required": names},
    });
    Some(Ask::new(ARGUMENTS, AskKind::Elicit, params))
}

/// What a person answered, put beside what was given.
pub(crate) fn answered(given: &mut BTreeMap<String, String>, answer: &Value) -> Result<(), ErrorData> {
    if answer.get("action").and_then(Value::as_str) != Some("accept") {
        return Err(ErrorData::invalid_params("the arguments that are missing were not given", None));
    }
    let content = answer.get("content").and_then(Value::as_object);
    for (name, value) in content.into_iter().flatten() {
        if let Value::String(text) = value {
            given.entry(name.clone()).or_insert_with(|| text.clone());
        }
    }
    Ok(())
}

/// The messages of a prompt with these arguments.
pub(crate) fn messages(
    offers: &Offers,
    prompt: &offer::Prompt,
    given: &BTreeMap<String, String>,
) -> Result<Vec<PromptMessage>, ErrorData> {
    let filled = prompt.filled(given).map_err(|error| unfit(&error))?;
    Ok(filled
        .into_iter()
        .filter_map(|message| {
            let role = match message.role {
                content::Role::User => Role::User,
                content::Role::Assistant => Role::Assistant,
            };
            Some(PromptMessage::new(role, block(offers, message.content)?))
        })
        .collect())
}

fn unfit(error: &FillError) -> ErrorData {
    ErrorData::invalid_params(error.to_string(), None)
}

/// `None`: a resource that is not there, of which a document that was checked has none.
fn block(offers: &Offers, content: Content) -> Option<ContentBlock> {
    Some(match content {
        Content::Text { text } => ContentBlock::text(text),
        Content::Image { data, mime_type } => ContentBlock::Image(ImageContent::new(data, mime_type)),
        Content::Audio { data, mime_type } => ContentBlock::Audio(AudioContent::new(data, mime_type)),
        Content::Embedded { uri, mime_type, text } => {
            ContentBlock::Resource(EmbeddedResource::new(ResourceContents::TextResourceContents {
                uri,
                mime_type,
                text,
                meta: None,
            }))
        }
        Content::Resource { path } => {
            let (uri, resource) = offers.at(&path)?;
            ContentBlock::Resource(EmbeddedResource::new(contents(uri, resource)))
        }
        Content::ResourceLink { path } => {
            let (uri, resource) = offers.at(&path)?;
            ContentBlock::ResourceLink(listed(uri, resource))
        }
    })
}

/// All resources of a view, in the order of their addresses.
pub(crate) fn resources(view: &View) -> BTreeMap<String, Resource> {
    let all = view.offers();
    let all = all.iter().flat_map(|offers| &offers.resources);
    all.map(|(uri, resource)| (uri.clone(), listed(uri, resource))).collect()
}

fn listed(uri: &str, resource: &offer::Resource) -> Resource {
    let mut shown = Resource::new(uri, resource.path.clone());
    shown.title = Some(resource.name.clone());
    shown.description.clone_from(&resource.description);
    shown.mime_type.clone_from(&resource.mime_type);
    shown.size = Some(resource.size());
    shown
}

/// All templates of a view, in the order of their addresses.
pub(crate) fn templates(view: &View) -> BTreeMap<String, ResourceTemplate> {
    let all = view.offers();
    let all = all.iter().flat_map(|offers| &offers.templates);
    all.map(|(uri, (_, template))| {
        let mut shown = ResourceTemplate::new(uri.clone(), template.path.clone());
        shown.title = Some(template.name.clone());
        shown.description.clone_from(&template.description);
        shown.mime_type.clone_from(&template.mime_type);
        (uri.clone(), shown)
    })
    .collect()
}

/// What is at an address; `None`: nothing of a view.
pub(crate) fn read(view: &View, uri: &str) -> Option<Result<ResourceContents, ErrorData>> {
    view.offers().into_iter().find_map(|offers| {
        if let Some(resource) = offers.resources.get(uri) {
            return Some(Ok(contents(uri, resource)));
        }
        let (template, made) = offers.made(uri)?;
        Some(made.map_err(|error| unfit(&error)).map(|text| ResourceContents::TextResourceContents {
            uri: uri.to_owned(),
            mime_type: template.mime_type.clone(),
            text,
            meta: None,
        }))
    })
}

fn contents(uri: &str, resource: &offer::Resource) -> ResourceContents {
    let (uri, mime_type, meta) = (uri.to_owned(), resource.mime_type.clone(), None);
    match &resource.blob {
        Some(blob) => ResourceContents::BlobResourceContents { uri, mime_type, blob: blob.to_string(), meta },
        None => {
            let text = resource.text.as_deref().unwrap_or_default().to_owned();
            ResourceContents::TextResourceContents { uri, mime_type, text, meta }
        }
    }
}

/// Values for an argument of a prompt or a template, by what was typed so far.
pub(crate) fn complete(
    view: &View,
    about: &Reference,
    typed: &ArgumentInfo,
) -> Result<CompletionInfo, ErrorData> {
    let arguments: Cow<'_, [Argument]> = match about {
        Reference::Prompt(one) => Cow::Borrowed(&prompt(view, &one.name)?.1.arguments),
        Reference::Resource(one) => {
            let mut all = view.offers().into_iter();
            let found = all.find_map(|offers| offers.templates.get(&one.uri));
            let (pattern, template) = found.ok_or_else(|| {
                let uri = one_line(&one.uri, MAX_NAME);
                ErrorData::invalid_params(format!("there is no resource template `{uri}`"), None)
            })?;
            let unsaid = |name: &&str| !template.arguments.iter().any(|one| one.name == **name);
            let bare = |name: &str| Argument {
                name: name.to_owned(),
                title: None,
                description: None,
                required: true,
                values: Vec::new(),
            };
            let mut arguments = template.arguments.clone();
            arguments.extend(pattern.names().filter(unsaid).map(bare));
            Cow::Owned(arguments)
        }
        _ => {
            return Err(ErrorData::invalid_params("`ref` is neither a prompt nor a resource template", None));
        }
    };
    let argument = arguments.iter().find(|argument| argument.name == typed.name).ok_or_else(|| {
        let name = one_line(&typed.name, MAX_NAME);
        ErrorData::invalid_params(format!("there is no argument `{name}`"), None)
    })?;
    let found = offer::complete(argument, &typed.value);
    let values = found.iter().take(CompletionInfo::MAX_VALUES).map(|value| (*value).to_owned()).collect();
    let mut info = CompletionInfo::default();
    info.values = values;
    info.total = u32::try_from(found.len()).ok();
    info.has_more = Some(found.len() > CompletionInfo::MAX_VALUES);
    Ok(info)
}

/// The icons of a tool, if its source has some for it.
pub(crate) fn icons(offers: Option<&Offers>, tool: &str) -> Option<Vec<Icon>> {
    let icons = offers?.icons(tool);
    let shown = |icon: &offer::Icon| {
        let mut shown = Icon::new(icon.src.clone());
        let kind = icon.src.strip_prefix("data:").and_then(|rest| rest.split_once(';'));
        shown.mime_type = kind.map(|(kind, _)| kind.to_owned());
        shown.sizes = (!icon.sizes.is_empty()).then(|| icon.sizes.clone());
        shown
    };
    (!icons.is_empty()).then(|| icons.iter().map(shown).collect())
}
