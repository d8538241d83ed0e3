//! Prompts and resources of a source. They are data and contain no code.
//!
//! A plugin ships one JSON document in the custom section [`SECTION`] of its component. The host reads and checks the
//! document when it loads the plugin. The constants below limit its size.
//!
//! ```json
//! {
//!   "version": 1,
//!   "prompts": [{
//!     "name": "review",
//!     "description": "Reviews a change.",
//!     "arguments": [{"name": "language", "required": true, "values": ["rust", "go"]}],
//!     "messages": [
//!       {"role": "user", "content": {"type": "resource", "path": "style.md"}},
//!       {"role": "user", "content": {"type": "text", "text": "Review this {{language}} code."}}
//!     ]
//!   }],
//!   "resources": [{"path": "style.md", "name": "Style", "mime_type": "text/markdown", "text": "…"}],
//!   "templates": [{"path": "greeting/{name}", "name": "Greeting", "mime_type": "text/plain", "text": "Hello {{name}}"}],
//!   "icons": {"grep": [{"src": "data:image/png;base64,…"}]}
//! }
//! ```
//!
//! Names and paths are local to the plugin. The host prefixes them with the plugin's id, so that no plugin can use
//! names of another: `PLUGIN__review`, `toolbay://plugin/PLUGIN/style.md`.

mod check;
mod fill;
mod pattern;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use self::fill::FillError;
pub use self::pattern::PathPattern;

use serde::{Deserialize, Serialize};
use toolbay_policy::name::{NAME_SEPARATOR, PluginId};

use crate::tool::content::Role;

/// The custom section of a component that holds the document.
pub const SECTION: &str = "toolbay:offers";
/// The version of the document that this host reads.
pub const VERSION: u32 = 1;
/// Largest document, in bytes: about a thousand pages of text.
pub const MAX_DOCUMENT_BYTES: usize = 4 << 20;
/// Most prompts of one document.
pub const MAX_PROMPTS: usize = 100;
/// Most resources of one document.
pub const MAX_RESOURCES: usize = 500;
/// Most templates of one document: each is matched against every requested address.
pub const MAX_TEMPLATES: usize = 50;
/// Most arguments of a prompt or a template, and most messages of a prompt.
pub const MAX_PARTS: usize = 64;
/// Most suggested values of an argument.
pub const MAX_VALUES: usize = 500;
/// Longest suggested value of an argument, in characters.
pub const MAX_VALUE: usize = 256;
/// Longest path, in characters.
pub const MAX_PATH: usize = 256;
/// Longest description, in characters.
pub const MAX_DESCRIPTION: usize = 4000;
/// Longest title or display name, in characters.
pub const MAX_LABEL: usize = 256;
/// Most bytes of the icons in a list of all tools of a plugin. An icon counts once for each tool that shows it.
pub const MAX_ICON_BYTES: usize = 64 << 10;
/// Longest value of an argument, in bytes.
pub const MAX_ARGUMENT_BYTES: usize = 64 << 10;
/// Largest text of a filled prompt or template, in bytes.
pub const MAX_FILLED_BYTES: usize = 1 << 20;
/// The prefix of resource addresses of plugins. The plugin's id, `/` and the path follow.
pub const PREFIX: &str = "toolbay://plugin/";
/// The key in `icons` that applies to all tools without their own icons.
pub const ALL_TOOLS: &str = "*";

/// The document of a plugin.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptsAndResourcesDocument {
    /// [`VERSION`].
    pub version: u32,
    /// The prompts, with unique names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<Prompt>,
    /// The resources, with unique paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    /// The resource templates, with unique paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub templates: Vec<ResourceTemplate>,
    /// The icons by tool; [`ALL_TOOLS`] applies to all other tools.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub icons: BTreeMap<String, Vec<Icon>>,
}

/// A prompt: messages for a conversation with placeholders.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prompt {
    /// The name, with the same rules as a tool name.
    pub name: String,
    /// The display name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The purpose of the prompt.
    pub description: String,
    /// The arguments that fill the placeholders.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<DocumentArgument>,
    /// The messages.
    pub messages: Vec<PromptMessage>,
}

/// An argument of a prompt or template, which fills the placeholders `{{name}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DocumentArgument {
    /// The name.
    pub name: String,
    /// The display name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether the argument is required. An absent optional argument leaves its placeholders empty.
    #[serde(default)]
    pub required: bool,
    /// Suggested values. Other values are accepted as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// A message of a prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptMessage {
    /// The role of the speaker.
    pub role: Role,
    /// The content.
    pub content: MessageContent,
}

/// The content of a message. Texts may have placeholders.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum MessageContent {
    /// A text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image {
        /// The image in base64.
        data: String,
        /// The media type.
        mime_type: String,
    },
    /// An audio clip.
    Audio {
        /// The audio data in base64.
        data: String,
        /// The media type.
        mime_type: String,
    },
    /// A resource of this document with its content.
    Resource {
        /// The path of the resource.
        path: String,
    },
    /// A link to a resource of this document.
    ResourceLink {
        /// The path of the resource.
        path: String,
    },
    /// An external resource with its text.
    Embedded {
        /// The address of the resource.
        uri: String,
        /// The media type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
        /// The text.
        text: String,
    },
}

/// A resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// The path: `guide/style.md`.
    pub path: String,
    /// The display name for people.
    pub name: String,
    /// The description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The content of a text resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Arc<str>>,
    /// The content of a binary resource, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<Arc<str>>,
}

impl Resource {
    /// The size of the content in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        let text = self.text.as_ref().map_or(0, |text| text.len());
        let blob = self.blob.as_ref().map_or(0, |blob| check::decoded_len(blob));
        (text + blob) as u64
    }
}

/// A resource template: a resource whose text depends on its address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceTemplate {
    /// The path with placeholders, each for one path segment or a part of it: `users/{id}`.
    pub path: String,
    /// The display name for people.
    pub name: String,
    /// The description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The media type. If it is JSON, values are escaped for JSON strings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The text with placeholders `{{id}}`.
    pub text: String,
    /// Descriptions of the placeholders. A placeholder without an entry has only a name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<DocumentArgument>,
}

/// An icon of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Icon {
    /// A data URI: `data:image/png;base64,…`. Icons are never fetched.
    pub src: String,
    /// The sizes: `48x48`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<String>,
}

impl PromptsAndResourcesDocument {
    /// Parses and checks a document.
    ///
    /// # Errors
    /// The document is invalid; the error names the first problem.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_DOCUMENT_BYTES {
            return Err(format!("it has {} bytes; the limit is {MAX_DOCUMENT_BYTES} bytes", text.len()));
        }
        let value =
            crate::tool::json::parse(text).map_err(|error| format!("it is not valid JSON: {error}"))?;
        // Serde would accept an array with the right number of elements.
        if !value.is_object() {
            return Err("invalid type: the document is not an object".to_owned());
        }
        let document: Self = serde_json::from_value(value).map_err(|error| error.to_string())?;
        check::check_document(&document)?;
        Ok(document)
    }

    /// Checks the icons against the tools of the plugin.
    ///
    /// # Errors
    /// An icon is for an unknown tool, or the icons exceed [`MAX_ICON_BYTES`].
    pub fn check_icons<'a>(&self, tools: impl Iterator<Item = &'a str>) -> Result<(), String> {
        check::check_icons(self, &tools.collect::<BTreeSet<_>>())
    }
}

/// The prompts and resources of a source, under their public names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PromptsAndResources {
    /// The plugin, if the source is one.
    pub plugin: Option<PluginId>,
    /// The prompts by name.
    pub prompts: BTreeMap<String, Prompt>,
    /// The resources by address.
    pub resources: BTreeMap<String, Resource>,
    /// The templates by address, with the patterns that match addresses.
    pub templates: BTreeMap<String, (PathPattern, ResourceTemplate)>,
    icons: BTreeMap<String, Vec<Icon>>,
    base: String,
}

impl PromptsAndResources {
    /// The prompts and resources of a plugin, with its id as prefix.
    ///
    /// # Errors
    /// A template has an invalid path, which cannot happen in a parsed document.
    pub fn from_plugin(plugin: &PluginId, document: &PromptsAndResourcesDocument) -> Result<Self, String> {
        let base = format!("{PREFIX}{plugin}/");
        let named = Self::with_names(document, |name| format!("{plugin}{NAME_SEPARATOR}{name}"), &base)?;
        Ok(Self { plugin: Some(plugin.clone()), ..named })
    }

    /// The prompts and resources of the embedder, with unchanged names and with addresses that start with `base`.
    ///
    /// # Errors
    /// The same as [`PromptsAndResources::from_plugin`].
    pub fn from_native(document: &PromptsAndResourcesDocument, base: &str) -> Result<Self, String> {
        Self::with_names(document, str::to_owned, base)
    }

    fn with_names(
        document: &PromptsAndResourcesDocument,
        name: impl Fn(&str) -> String,
        base: &str,
    ) -> Result<Self, String> {
        let uri = |path: &str| format!("{base}{path}");
        let template = |template: &ResourceTemplate| {
            let uri = uri(&template.path);
            Ok((uri.clone(), (PathPattern::parse(&uri)?, template.clone())))
        };
        Ok(Self {
            plugin: None,
            prompts: document.prompts.iter().map(|one| (name(&one.name), one.clone())).collect(),
            resources: document.resources.iter().map(|one| (uri(&one.path), one.clone())).collect(),
            templates: document.templates.iter().map(template).collect::<Result<_, String>>()?,
            icons: document.icons.clone(),
            base: base.to_owned(),
        })
    }

    /// The icons of a tool, by its name without the plugin's id.
    #[must_use]
    pub fn icons(&self, tool: &str) -> &[Icon] {
        self.icons.get(tool).or_else(|| self.icons.get(ALL_TOOLS)).map_or(&[], Vec::as_slice)
    }

    /// The resource at a path of the document, and its address.
    #[must_use]
    pub fn resource_at(&self, path: &str) -> Option<(&str, &Resource)> {
        let found = self.resources.get_key_value(&format!("{}{path}", self.base))?;
        Some((found.0, found.1))
    }

    /// The template that matches an address, and its text for this address.
    ///
    /// # Errors
    /// See [`FillError`].
    pub fn expand_template(&self, uri: &str) -> Option<(&ResourceTemplate, Result<String, FillError>)> {
        self.templates.values().find_map(|(pattern, template)| {
            let values = pattern.matches(uri)?;
            Some((template, fill::fill_template(template, &values)))
        })
    }

    /// Whether there are neither prompts nor resources.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.prompts.is_empty() && self.resources.is_empty() && self.templates.is_empty()
    }
}

/// The suggested values for a partial input: first those that start with it, then those that contain it, ignoring case.
#[must_use]
pub fn complete<'a>(argument: &'a DocumentArgument, typed: &str) -> Vec<&'a str> {
    let typed = typed.to_lowercase();
    let (mut first, mut then) = (Vec::new(), Vec::new());
    for value in &argument.values {
        match value.to_lowercase().find(&typed) {
            Some(0) => first.push(value.as_str()),
            Some(_) => then.push(value.as_str()),
            None => {}
        }
    }
    first.append(&mut then);
    first
}

impl Prompt {
    /// The required arguments that are missing.
    pub fn missing_arguments<'a>(
        &'a self,
        given: &BTreeMap<String, String>,
    ) -> impl Iterator<Item = &'a DocumentArgument> {
        self.arguments.iter().filter(|argument| argument.required && !given.contains_key(&argument.name))
    }

    /// The messages with filled placeholders.
    ///
    /// # Errors
    /// See [`FillError`].
    pub fn fill(&self, given: &BTreeMap<String, String>) -> Result<Vec<PromptMessage>, FillError> {
        fill::fill_prompt(self, given)
    }
}

#[cfg(test)]
#[path = "prompts_and_resources/tests.rs"]
mod tests;
