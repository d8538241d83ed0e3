//! Converts the prompts and resources of plugins and the embedder to their MCP representation.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use rmcp::model::{
    ArgumentInfo, AudioContent, CompletionInfo, ContentBlock, EmbeddedResource, ErrorData, Icon,
    ImageContent, JsonObject, Prompt, PromptArgument, PromptMessage, Reference, Resource, ResourceContents,
    ResourceTemplate, Role,
};
use serde_json::{Value, json};
use toolbay_core::call::dialog::{DialogRequest, DialogRequestKind};
use toolbay_core::registry::view::View;
use toolbay_core::tool::content;
use toolbay_core::tool::prompts_and_resources::{
    self, DocumentArgument, FillError, MessageContent, PathPattern, PromptsAndResources,
};
use toolbay_policy::excerpt::one_line;

use crate::protocol::uri::{is_same_uri, normalize_own_address};

/// Longest name or URI in an error, in characters.
const MAX_NAME: usize = 200;
/// Key of the input request for missing arguments.
const ARGUMENTS_KEY: &str = "toolbay/arguments";

/// All prompts of a view, by name.
pub(crate) fn list_prompts(view: &View) -> BTreeMap<String, Prompt> {
    let all = view.prompts_and_resources();
    let all = all.iter().flat_map(|source| &source.prompts);
    all.map(|(name, prompt)| (name.clone(), to_mcp_prompt(name, prompt))).collect()
}

fn to_mcp_prompt(name: &str, prompt: &prompts_and_resources::Prompt) -> Prompt {
    let argument = |argument: &DocumentArgument| {
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

/// Finds a prompt of a view, with the source that offers it.
pub(crate) fn find_prompt<'v>(
    view: &'v View,
    name: &str,
) -> Result<(&'v PromptsAndResources, &'v prompts_and_resources::Prompt), ErrorData> {
    let found = view
        .prompts_and_resources()
        .into_iter()
        .find_map(|source| Some((&**source, source.prompts.get(name)?)));
    found.ok_or_else(|| {
        ErrorData::invalid_params(format!("Unknown prompt: {}", one_line(name, MAX_NAME)), None)
    })
}

/// Parses the arguments of a request, which must be strings.
pub(crate) fn parse_arguments(arguments: Option<JsonObject>) -> Result<BTreeMap<String, String>, ErrorData> {
    let text = |(name, value): (String, Value)| match value {
        Value::String(text) => Ok((name, text)),
        _ => {
            let text = format!("argument `{}` is not a string", one_line(&name, MAX_NAME));
            Err(ErrorData::invalid_params(text, None))
        }
    };
    arguments.into_iter().flatten().map(text).collect()
}

/// The input request for missing arguments. `None` if none is missing.
pub(crate) fn missing_arguments_request(
    prompt: &prompts_and_resources::Prompt,
    given: &BTreeMap<String, String>,
) -> Option<DialogRequest> {
    let missing: Vec<&DocumentArgument> = prompt.missing_arguments(given).collect();
    if missing.is_empty() {
        return None;
    }
    let field = |argument: &&DocumentArgument| {
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
    Some(DialogRequest::new(ARGUMENTS_KEY, DialogRequestKind::Elicit, params))
}

/// Adds the answers of the user to the given arguments.
pub(crate) fn merge_answers(given: &mut BTreeMap<String, String>, answer: &Value) -> Result<(), ErrorData> {
    if answer.get("action").and_then(Value::as_str) != Some("accept") {
        return Err(ErrorData::invalid_params("required arguments are missing", None));
    }
    let content = answer.get("content").and_then(Value::as_object);
    for (name, value) in content.into_iter().flatten() {
        if let Value::String(text) = value {
            given.entry(name.clone()).or_insert_with(|| text.clone());
        }
    }
    Ok(())
}

/// Fills a prompt with arguments.
pub(crate) fn fill_messages(
    source: &PromptsAndResources,
    prompt: &prompts_and_resources::Prompt,
    given: &BTreeMap<String, String>,
) -> Result<Vec<PromptMessage>, ErrorData> {
    let filled = prompt.fill(given).map_err(|error| invalid_arguments(&error))?;
    Ok(filled
        .into_iter()
        .filter_map(|message| {
            let role = match message.role {
                content::Role::User => Role::User,
                content::Role::Assistant => Role::Assistant,
            };
            Some(PromptMessage::new(role, message_block(source, message.content)?))
        })
        .collect())
}

fn invalid_arguments(error: &FillError) -> ErrorData {
    ErrorData::invalid_params(error.to_string(), None)
}

/// Converts message content. `None` if it refers to an unknown resource, which a checked document never does.
fn message_block(source: &PromptsAndResources, content: MessageContent) -> Option<ContentBlock> {
    Some(match content {
        MessageContent::Text { text } => ContentBlock::text(text),
        MessageContent::Image { data, mime_type } => ContentBlock::Image(ImageContent::new(data, mime_type)),
        MessageContent::Audio { data, mime_type } => ContentBlock::Audio(AudioContent::new(data, mime_type)),
        MessageContent::Embedded { uri, mime_type, text } => {
            ContentBlock::Resource(EmbeddedResource::new(ResourceContents::TextResourceContents {
                uri,
                mime_type,
                text,
                meta: None,
            }))
        }
        MessageContent::Resource { path } => {
            let (uri, resource) = source.resource_at(&path)?;
            ContentBlock::Resource(EmbeddedResource::new(to_contents(uri, resource)))
        }
        MessageContent::ResourceLink { path } => {
            let (uri, resource) = source.resource_at(&path)?;
            ContentBlock::ResourceLink(to_mcp_resource(uri, resource))
        }
    })
}

/// All resources of a view, by URI.
pub(crate) fn list_resources(view: &View) -> BTreeMap<String, Resource> {
    let all = view.prompts_and_resources();
    let all = all.iter().flat_map(|source| &source.resources);
    all.map(|(uri, resource)| (uri.clone(), to_mcp_resource(uri, resource))).collect()
}

fn to_mcp_resource(uri: &str, resource: &prompts_and_resources::Resource) -> Resource {
    let mut shown = Resource::new(uri, resource.path.clone());
    shown.title = Some(resource.name.clone());
    shown.description.clone_from(&resource.description);
    shown.mime_type.clone_from(&resource.mime_type);
    shown.size = Some(resource.size());
    shown
}

/// All resource templates of a view, by URI.
pub(crate) fn list_templates(view: &View) -> BTreeMap<String, ResourceTemplate> {
    let all = view.prompts_and_resources();
    let all = all.iter().flat_map(|source| &source.templates);
    all.map(|(uri, (_, template))| {
        let mut shown = ResourceTemplate::new(uri.clone(), template.path.clone());
        shown.title = Some(template.name.clone());
        shown.description.clone_from(&template.description);
        shown.mime_type.clone_from(&template.mime_type);
        (uri.clone(), shown)
    })
    .collect()
}

/// Reads a resource of a view. `None` if the view has no such resource. The percent-encoding of an address of this host
/// may differ from that in the lists.
pub(crate) fn read_resource(view: &View, uri: &str) -> Option<Result<ResourceContents, ErrorData>> {
    let sources = view.prompts_and_resources();
    read_address(&sources, uri, uri).or_else(|| read_address(&sources, &normalize_own_address(uri)?, uri))
}

/// Reads the resource at an address, which the client calls `uri`.
fn read_address(
    sources: &[&Arc<PromptsAndResources>],
    address: &str,
    uri: &str,
) -> Option<Result<ResourceContents, ErrorData>> {
    sources.iter().find_map(|source| {
        if let Some(resource) = source.resources.get(address) {
            return Some(Ok(to_contents(uri, resource)));
        }
        let (template, made) = source.expand_template(address)?;
        Some(made.map_err(|error| invalid_arguments(&error)).map(|text| {
            ResourceContents::TextResourceContents {
                uri: uri.to_owned(),
                mime_type: template.mime_type.clone(),
                text,
                meta: None,
            }
        }))
    })
}

fn to_contents(uri: &str, resource: &prompts_and_resources::Resource) -> ResourceContents {
    let (uri, mime_type, meta) = (uri.to_owned(), resource.mime_type.clone(), None);
    match &resource.blob {
        Some(blob) => ResourceContents::BlobResourceContents { uri, mime_type, blob: blob.to_string(), meta },
        None => {
            let text = resource.text.as_deref().unwrap_or_default().to_owned();
            ResourceContents::TextResourceContents { uri, mime_type, text, meta }
        }
    }
}

/// The template with this URI, in any percent-encoding.
fn find_template<'v>(
    source: &'v PromptsAndResources,
    uri: &str,
) -> Option<&'v (PathPattern, prompts_and_resources::ResourceTemplate)> {
    let same = || source.templates.iter().find(|(address, _)| is_same_uri(address, uri));
    source.templates.get(uri).or_else(|| same().map(|(_, template)| template))
}

/// Completes an argument of a prompt or a template from its prefix.
pub(crate) fn complete_argument(
    view: &View,
    about: &Reference,
    typed: &ArgumentInfo,
) -> Result<CompletionInfo, ErrorData> {
    let arguments: Cow<'_, [DocumentArgument]> = match about {
        Reference::Prompt(one) => Cow::Borrowed(&find_prompt(view, &one.name)?.1.arguments),
        Reference::Resource(one) => {
            let mut all = view.prompts_and_resources().into_iter();
            let found = all.find_map(|source| find_template(source, &one.uri));
            let (pattern, template) = found.ok_or_else(|| {
                let uri = one_line(&one.uri, MAX_NAME);
                ErrorData::invalid_params(format!("unknown resource template `{uri}`"), None)
            })?;
            let undocumented = |name: &&str| !template.arguments.iter().any(|one| one.name == **name);
            let bare = |name: &str| DocumentArgument {
                name: name.to_owned(),
                title: None,
                description: None,
                required: true,
                values: Vec::new(),
            };
            let mut arguments = template.arguments.clone();
            arguments.extend(pattern.names().filter(undocumented).map(bare));
            Cow::Owned(arguments)
        }
        _ => {
            return Err(ErrorData::invalid_params("`ref` is neither a prompt nor a resource template", None));
        }
    };
    let argument = arguments.iter().find(|argument| argument.name == typed.name).ok_or_else(|| {
        let name = one_line(&typed.name, MAX_NAME);
        ErrorData::invalid_params(format!("unknown argument `{name}`"), None)
    })?;
    let found = prompts_and_resources::complete(argument, &typed.value);
    let values = found.iter().take(CompletionInfo::MAX_VALUES).map(|value| (*value).to_owned()).collect();
    let mut info = CompletionInfo::default();
    info.values = values;
    info.total = u32::try_from(found.len()).ok();
    info.has_more = Some(found.len() > CompletionInfo::MAX_VALUES);
    Ok(info)
}

/// The icons of a tool, if its source has any.
pub(crate) fn tool_icons(source: Option<&PromptsAndResources>, tool: &str) -> Option<Vec<Icon>> {
    let icons = source?.icons(tool);
    let shown = |icon: &prompts_and_resources::Icon| {
        let mut shown = Icon::new(icon.src.clone());
        let kind = icon.src.strip_prefix("data:").and_then(|rest| rest.split_once(';'));
        shown.mime_type = kind.map(|(kind, _)| kind.to_owned());
        shown.sizes = (!icon.sizes.is_empty()).then(|| icon.sizes.clone());
        shown
    };
    (!icons.is_empty()).then(|| icons.iter().map(shown).collect())
}
