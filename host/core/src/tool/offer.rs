//! What a source offers beside tools: prompts and resources, which are data and run nothing.
//!
//! A plugin ships one JSON document in the section [`SECTION`] of its component. It is read once, when the plugin is
//! loaded, checked whole, and bounded by the constants here; nothing of it is ever run.
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
//! Names and paths are the plugin's own; the host puts the plugin's id before them, so that no plugin can speak under
//! the name of another: `PLUGIN__review`, `toolbay://plugin/PLUGIN/style.md`.

mod check;
mod fill;
mod pattern;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use self::fill::FillError;
pub use self::pattern::PathPattern;

use serde::{Deserialize, Serialize};
use toolbay_policy::name::{PluginId, SEAM};

use crate::tool::content::Role;

/// The custom section of a component that holds the document.
pub const SECTION: &str = "toolbay:offers";
/// The version of the document that this host reads.
pub const VERSION: u32 = 1;
/// Largest document, in bytes: some thousand pages of text.
pub const MAX_DOCUMENT_BYTES: usize = 4 << 20;
/// Most prompts of one document.
pub const MAX_PROMPTS: usize = 100;
/// Most resources of one document.
pub const MAX_RESOURCES: usize = 500;
/// Most templates of one document: each is compared with each address that is read.
pub const MAX_TEMPLATES: usize = 50;
/// Most arguments of a prompt or a template, and most messages of a prompt.
pub const MAX_PARTS: usize = 64;
/// Most values that an argument lists.
pub const MAX_VALUES: usize = 500;
/// Longest value that an argument lists, in characters.
pub const MAX_VALUE: usize = 256;
/// Longest path, in characters.
pub const MAX_PATH: usize = 256;
/// Longest description, in characters.
pub const MAX_DESCRIPTION: usize = 4000;
/// Longest title or name to show, in characters.
pub const MAX_LABEL: usize = 256;
/// Bytes that the icons of all tools of a plugin may have together, each counted for each tool that shows it: they are
/// in every list of tools.
pub const MAX_ICON_BYTES: usize = 64 << 10;
/// Longest argument that is put into a text, in bytes.
pub const MAX_ARGUMENT_BYTES: usize = 64 << 10;
/// Largest text that becomes of a prompt or a template, in bytes.
pub const MAX_FILLED_BYTES: usize = 1 << 20;
/// What the addresses of a plugin's resources begin with; its id, `/` and the path follow.
pub const PREFIX: &str = "toolbay://plugin/";
/// Stands in `icons` for all tools.
pub const ALL_TOOLS: &str = "*";

/// The document as it is written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// [`VERSION`].
    pub version: u32,
    /// Prompts, by names of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<Prompt>,
    /// Resources, by paths of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    /// Resources that are made of their address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub templates: Vec<Template>,
    /// Icons by tool; [`ALL_TOOLS`] is for those that are not named.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub icons: BTreeMap<String, Vec<Icon>>,
}

/// A text for a conversation, with gaps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prompt {
    /// Its name, as a tool's.
    pub name: String,
    /// Its name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it is for.
    pub description: String,
    /// What fills its gaps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<Argument>,
    /// What is said.
    pub messages: Vec<Message>,
}

/// What fills the gaps of this name, `{{name}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Argument {
    /// Its name.
    pub name: String,
    /// Its name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether it must be given. Where it need not and is not, nothing stands in its place.
    #[serde(default)]
    pub required: bool,
    /// Values that are proposed; others are taken, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// One message of a prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What.
    pub content: Content,
}

/// What a message says. Texts may have gaps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Content {
    /// A text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// Its bytes in base64.
        data: String,
        /// What it is.
        mime_type: String,
    },
    /// A sound.
    Audio {
        /// Its bytes in base64.
        data: String,
        /// What it is.
        mime_type: String,
    },
    /// A resource of this document, whole.
    Resource {
        /// Its path.
        path: String,
    },
    /// A link to a resource of this document.
    ResourceLink {
        /// Its path.
        path: String,
    },
    /// A text that stands for a resource elsewhere.
    Embedded {
        /// Its address.
        uri: String,
        /// What it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
        /// The text.
        text: String,
    },
}

/// Something to read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// Where: `guide/style.md`.
    pub path: String,
    /// Its name for people.
    pub name: String,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What kind of file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The text, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Arc<str>>,
    /// The bytes in base64, if it is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<Arc<str>>,
}

impl Resource {
    /// How large it is, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        let text = self.text.as_ref().map_or(0, |text| text.len());
        let blob = self.blob.as_ref().map_or(0, |blob| check::decoded_len(blob));
        (text + blob) as u64
    }
}

/// Something to read whose text is made of its address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// Where, with gaps for one step each: `users/{id}`.
    pub path: String,
    /// Its name for people.
    pub name: String,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What kind of file. Where it is JSON, values are escaped as its strings want it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The text, with `{{id}}` where the value goes.
    pub text: String,
    /// What is said of the gaps; those that are not here have a name only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<Argument>,
}

/// A picture beside a tool's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Icon {
    /// `data:image/png;base64,…`: nothing is fetched.
    pub src: String,
    /// For which sizes: `48x48`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<String>,
}

impl Document {
    /// Reads and checks a document.
    ///
    /// # Errors
    /// Names the first thing that is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_DOCUMENT_BYTES {
            return Err(format!("it has {} bytes; at most {MAX_DOCUMENT_BYTES} are taken", text.len()));
        }
        let value = crate::tool::json::parse(text).map_err(|error| format!("it is not JSON: {error}"))?;
        // A list of the right length would do for it.
        if !value.is_object() {
            return Err("invalid type: the document is no object".to_owned());
        }
        let document: Self = serde_json::from_value(value).map_err(|error| error.to_string())?;
        check::document(&document)?;
        Ok(document)
    }

    /// Checks its icons against the tools it stands beside.
    ///
    /// # Errors
    /// An icon for a tool that is not there, or more bytes in lists than [`MAX_ICON_BYTES`].
    pub fn check_icons<'a>(&self, tools: impl Iterator<Item = &'a str>) -> Result<(), String> {
        check::icons(self, &tools.collect::<BTreeSet<_>>())
    }
}

/// What a source offers, under the names by which clients know it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Offers {
    /// Whose it is, if it is a plugin's.
    pub plugin: Option<PluginId>,
    /// Prompts by their names.
    pub prompts: BTreeMap<String, Prompt>,
    /// Resources by their addresses.
    pub resources: BTreeMap<String, Resource>,
    /// Templates by their addresses, with what tells whether an address is one of theirs.
    pub templates: BTreeMap<String, (PathPattern, Template)>,
    icons: BTreeMap<String, Vec<Icon>>,
    base: String,
}

impl Offers {
    /// A plugin's, each name behind its id.
    ///
    /// # Errors
    /// A template whose path is none; a document that was parsed has none such.
    pub fn of_plugin(plugin: &PluginId, document: &Document) -> Result<Self, String> {
        let base = format!("{PREFIX}{plugin}/");
        let offers = Self::named(document, |name| format!("{plugin}{SEAM}{name}"), &base)?;
        Ok(Self { plugin: Some(plugin.clone()), ..offers })
    }

    /// Those of the embedder, under the names as they are written and addresses that begin with `base`.
    ///
    /// # Errors
    /// As [`Offers::of_plugin`].
    pub fn native(document: &Document, base: &str) -> Result<Self, String> {
        Self::named(document, str::to_owned, base)
    }

    fn named(document: &Document, name: impl Fn(&str) -> String, base: &str) -> Result<Self, String> {
        let uri = |path: &str| format!("{base}{path}");
        let template = |template: &Template| {
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

    /// The icons of a tool, by its name inside its plugin.
    #[must_use]
    pub fn icons(&self, tool: &str) -> &[Icon] {
        self.icons.get(tool).or_else(|| self.icons.get(ALL_TOOLS)).map_or(&[], Vec::as_slice)
    }

    /// The resource at a path of the document, with its address.
    #[must_use]
    pub fn at(&self, path: &str) -> Option<(&str, &Resource)> {
        let found = self.resources.get_key_value(&format!("{}{path}", self.base))?;
        Some((found.0, found.1))
    }

    /// What is at an address that is made of a template, with the template.
    ///
    /// # Errors
    /// See [`FillError`].
    pub fn made(&self, uri: &str) -> Option<(&Template, Result<String, FillError>)> {
        self.templates.values().find_map(|(pattern, template)| {
            let values = pattern.matches(uri)?;
            Some((template, fill::template(template, &values)))
        })
    }

    /// Whether there is nothing to list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.prompts.is_empty() && self.resources.is_empty() && self.templates.is_empty()
    }
}

/// The values that an argument proposes for what was typed so far: those that begin with it, then those that have it
/// anywhere; small and large letters are the same.
#[must_use]
pub fn complete<'a>(argument: &'a Argument, typed: &str) -> Vec<&'a str> {
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
    /// The arguments that must be given and are not.
    pub fn missing<'a>(&'a self, given: &BTreeMap<String, String>) -> impl Iterator<Item = &'a Argument> {
        self.arguments.iter().filter(|argument| argument.required && !given.contains_key(&argument.name))
    }

    /// The messages with their gaps filled.
    ///
    /// # Errors
    /// See [`FillError`].
    pub fn filled(&self, given: &BTreeMap<String, String>) -> Result<Vec<Message>, FillError> {
        fill::prompt(self, given)
    }
}

#[cfg(test)]
#[path = "offer/tests.rs"]
mod tests;
