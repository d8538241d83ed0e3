//! What a foreign component would have answered, had it been asked what it is.

use toolbay_core::tool::manifest::{Manifest, Need, ToolManifest};
use toolbay_policy::capability::CapabilityKind;
use toolbay_policy::text::one_line;
use wasmtime::component::types::Type;

use super::{Entry, Export, Foreign, Function, Sections, functions, names, schema};
use crate::engine::Engine;
use crate::engine::bindings::about::exports::toolbay::plugin::about::PluginInfo;
use crate::engine::bindings::types::{Capability, ToolDef, ToolTraits};
use crate::error::LoadError;

/// Longest schema that is made of types, in bytes: a model reads it in each turn.
const MAX_SCHEMA: usize = 64 << 10;
/// Functions of which is said why they are no tools; the rest is counted.
const MAX_TOLD: usize = 20;
/// What the toolchains for JavaScript and Python leave among the exports for themselves.
const LEFT_BY_TOOLS: [(Option<&str>, &str); 2] = [(None, "init"), (Some("exports"), "")];

/// What it is.
pub(crate) struct Declared {
    pub(crate) about: Option<PluginInfo>,
    pub(crate) tools: Vec<(ToolDef, Entry)>,
    /// What it exports and is no tool, and why.
    pub(crate) left_out: Vec<String>,
}

/// Says what a component is by its types, its author's file and what it imports.
///
/// # Errors
/// The file says what cannot be, or nothing of the component is a tool.
pub(crate) fn declare(
    engine: &Engine,
    foreign: &Foreign,
    sections: &Sections,
    imports: &[String],
) -> Result<Declared, LoadError> {
    let functions = functions(engine, &foreign.ty())?;
    let wishes = wishes(imports);
    let mut declared = match &sections.manifest {
        Some(manifest) => by_file(foreign, &functions, sections, manifest)?,
        None => by_types(foreign, &functions, sections)?,
    };
    for (tool, _) in &mut declared.tools {
        let told = sections.manifest.as_ref().and_then(|manifest| manifest.tools.get(&tool.name));
        tool.capabilities = match told.and_then(|told| told.needs.as_ref()) {
            Some(needs) => needs.iter().map(wish).collect(),
            None => wishes.clone(),
        };
    }
    Ok(declared)
}

/// Without a file every function that can be one is a tool.
fn by_types(foreign: &Foreign, functions: &[Function], sections: &Sections) -> Result<Declared, LoadError> {
    let (mut tools, mut left_out) = (Vec::new(), Vec::new());
    let exports: Vec<Export> = functions.iter().map(|function| function.export.clone()).collect();
    for (function, name) in functions.iter().zip(names::of(&exports)) {
        let made = match (is_for_tools(&function.export), name) {
            (true, _) => Err("the toolchain made it for itself".to_owned()),
            (false, None) => Err("others have the same name; name it in the `plugin.toml`".to_owned()),
            (false, Some(name)) => definition(name, function, sections, None),
        };
        match made {
            Ok(tool) => tools.push((tool, Entry::Function(function.export.clone()))),
            Err(why) => {
                left_out.push(format!("its function `{}` is no tool: {why}", shown(&function.export)));
            }
        }
    }
    if tools.is_empty() {
        return Err(nothing(foreign, &left_out));
    }
    let more = left_out.len().saturating_sub(MAX_TOLD);
    left_out.truncate(MAX_TOLD);
    if more > 0 {
        left_out.push(format!("{more} more of its functions are no tools"));
    }
    Ok(Declared { about: None, tools, left_out })
}

/// With a file the tools are those that stand there.
fn by_file(
    foreign: &Foreign,
    functions: &[Function],
    sections: &Sections,
    manifest: &Manifest,
) -> Result<Declared, LoadError> {
    let mut tools = Vec::new();
    for (name, told) in &manifest.tools {
        let bad =
            |problem: String| LoadError::Metadata(format!("its `plugin.toml`: [tools.{name}]: {problem}"));
        tools.push(match told.template().map_err(bad)? {
            Some(_) if !foreign.is_program() => {
                return Err(bad("the component is no program: it does not export `wasi:cli/run`".to_owned()));
            }
            Some(template) => (program(name, told).map_err(bad)?, Entry::Program(template)),
            None => {
                let wanted = told.export.as_deref().unwrap_or_default();
                let found = functions.iter().find(|function| function.export.is(wanted));
                let function =
                    found.ok_or_else(|| bad(format!("the component exports no function `{wanted}`")))?;
                let tool = definition(name.clone(), function, sections, Some(told)).map_err(bad)?;
                (tool, Entry::Function(function.export.clone()))
            }
        });
    }
    Ok(Declared { about: about(manifest), tools, left_out: Vec::new() })
}

impl Export {
    fn is(&self, wanted: &str) -> bool {
        self.to_string() == wanted
    }
}

fn is_for_tools(export: &Export) -> bool {
    LEFT_BY_TOOLS.iter().any(|(interface, function)| match interface {
        Some(interface) => export.interface.as_deref() == Some(*interface),
        None => export.interface.is_none() && export.function == *function,
    })
}

/// A component of which nothing is a tool.
fn nothing(foreign: &Foreign, left_out: &[String]) -> LoadError {
    let why = match (foreign.is_program(), left_out.split_first()) {
        (true, _) => {
            "it is a program: write beside it a file NAME.plugin.toml that says which tools it makes \
                      (docs/how-to/plain-components.md)"
                .to_owned()
        }
        (false, None) => {
            "it exports neither `toolbay:plugin/tools` nor `toolbay:plugin/reducers` nor a function"
                .to_owned()
        }
        (false, Some((first, []))) => first.clone(),
        (false, Some((first, rest))) => format!("{first}; and {} more", rest.len()),
    };
    LoadError::WrongWorld(format!("is not a Toolbay plugin, and nothing of it is a tool: {why}"))
}

/// The tool that a function is.
fn definition(
    name: String,
    function: &Function,
    sections: &Sections,
    told: Option<&ToolManifest>,
) -> Result<ToolDef, String> {
    if function.export.function.starts_with('[') {
        return Err("it makes or uses a resource, which JSON cannot say".to_owned());
    }
    let (mut input, answer) = schema::of(&function.ty)?;
    if let Some(told) = told {
        told.add_to(&mut input)?;
    }
    let input = bounded(&input)?;
    let output = answer.schema().map(|schema| bounded(&schema)).transpose()?;
    let comment = || sections.comment(&function.export).map(str::to_owned);
    let description = told.and_then(|told| told.description.clone()).or_else(comment);
    let description = description.unwrap_or_else(|| signature(function));
    base(name, description, input, output, told)
}

fn bounded(schema: &serde_json::Value) -> Result<String, String> {
    let text = schema.to_string();
    if text.len() > MAX_SCHEMA {
        return Err(format!(
            "the schema of its types has {} bytes; at most {MAX_SCHEMA} are shown to a model",
            text.len()
        ));
    }
    Ok(text)
}

/// The tool that a program is.
fn program(name: &str, told: &ToolManifest) -> Result<ToolDef, String> {
    let description = told.description.clone().ok_or("it has no `description`")?;
    let output = told.output.as_ref().map(wrapped).as_ref().map(ToString::to_string);
    base(name.to_owned(), description, told.input_schema().to_string(), output, Some(told))
}

/// What a program prints, if it is no object, stands in one: as results of functions do.
fn wrapped(schema: &serde_json::Value) -> serde_json::Value {
    if schema.get("type").and_then(serde_json::Value::as_str) == Some("object") {
        return schema.clone();
    }
    serde_json::json!({"type": "object", "properties": {"result": schema}, "required": ["result"]})
}

fn base(
    name: String,
    description: String,
    input_schema: String,
    output_schema: Option<String>,
    told: Option<&ToolManifest>,
) -> Result<ToolDef, String> {
    let timeout = told.and_then(|told| told.timeout);
    Ok(ToolDef {
        name,
        title: told.and_then(|told| told.title.clone()),
        description,
        input_schema,
        output_schema,
        toolset: told.and_then(|told| told.toolset.clone()),
        tags: told.map(|told| told.tags.clone()).unwrap_or_default(),
        traits: told.map_or(Ok(ToolTraits::empty()), |told| traits(&told.traits))?,
        max_result_chars: told.and_then(|told| told.max_result_chars),
        timeout_ms: timeout.map(|time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX)),
        capabilities: Vec::new(),
        meta: None,
    })
}

fn traits(names: &[String]) -> Result<ToolTraits, String> {
    let mut found = ToolTraits::empty();
    for name in names {
        found |= match name.as_str() {
            "read-only" => ToolTraits::READ_ONLY,
            "additive" => ToolTraits::ADDITIVE,
            "idempotent" => ToolTraits::IDEMPOTENT,
            "closed-world" => ToolTraits::CLOSED_WORLD,
            "always-include" => ToolTraits::ALWAYS_INCLUDE,
            "untrusted-output" => ToolTraits::UNTRUSTED_OUTPUT,
            "needs-approval" => ToolTraits::NEEDS_APPROVAL,
            "deferred" => ToolTraits::DEFERRED,
            other => return Err(format!("`{}` is no trait of the contract", one_line(other, 80))),
        };
    }
    Ok(found)
}

fn about(manifest: &Manifest) -> Option<PluginInfo> {
    Some(PluginInfo {
        name: manifest.name.clone()?,
        version: manifest.release.clone().unwrap_or_default(),
        description: manifest.description.clone(),
        authors: manifest.authors.clone(),
        license: manifest.license.clone(),
        homepage: manifest.homepage.clone(),
        source: manifest.source.clone(),
        config_schema: None,
        meta: None,
    })
}

fn wish(need: &Need) -> Capability {
    Capability {
        kind: need.kind.clone(),
        target: need.target.clone(),
        optional: need.optional,
        reason: need.reason.clone(),
    }
}

/// What a component that declares nothing seems to want: all of what it imports, of which it gets what is granted.
fn wishes(imports: &[String]) -> Vec<Capability> {
    /// How an import begins, and what it is good for.
    const WANTS: [(&str, CapabilityKind, &str); 9] = [
        ("wasi:filesystem/", CapabilityKind::FsRead, "**"),
        ("wasi:filesystem/", CapabilityKind::FsWrite, "**"),
        ("wasi:http/", CapabilityKind::Net, "https://*:*"),
        ("wasi:http/", CapabilityKind::Net, "http://*:*"),
        ("wasi:sockets/tcp", CapabilityKind::Net, "tcp://*:*"),
        ("wasi:sockets/udp", CapabilityKind::Net, "udp://*:*"),
        ("wasi:clocks/wall-clock@", CapabilityKind::Clock, "wall"),
        ("wasi:random/random@", CapabilityKind::Random, "bytes"),
        ("wasi:random/insecure@", CapabilityKind::Random, "bytes"),
    ];
    let mut wishes: Vec<Capability> = Vec::new();
    for (begin, kind, target) in WANTS {
        let Some(import) = imports.iter().find(|import| import.starts_with(begin)) else { continue };
        if !wishes.iter().any(|wish| wish.kind == kind.as_str() && wish.target == target) {
            wishes.push(Capability {
                kind: kind.as_str().to_owned(),
                target: target.to_owned(),
                optional: true,
                reason: Some(format!("it imports `{}`", one_line(import, 120))),
            });
        }
    }
    wishes
}

fn shown(export: &Export) -> String {
    one_line(&export.to_string(), 120)
}

/// A description for want of one.
fn signature(function: &Function) -> String {
    let params: Vec<String> =
        function.ty.params().map(|(name, ty)| format!("{name}: {}", kind(&ty))).collect();
    let result = function.ty.results().next().map_or_else(String::new, |ty| format!(" -> {}", kind(&ty)));
    let text = format!("{}({}){result}", function.export, params.join(", "));
    format!("The function {}. Its author gives no description.", one_line(&text, 1000))
}

/// The type in the words of WIT, one level deep.
fn kind(ty: &Type) -> &'static str {
    match ty {
        Type::Bool => "bool",
        Type::S8 => "s8",
        Type::U8 => "u8",
        Type::S16 => "s16",
        Type::U16 => "u16",
        Type::S32 => "s32",
        Type::U32 => "u32",
        Type::S64 => "s64",
        Type::U64 => "u64",
        Type::Float32 => "f32",
        Type::Float64 => "f64",
        Type::Char => "char",
        Type::String => "string",
        Type::List(_) => "list",
        Type::Map(_) => "map",
        Type::Record(_) => "record",
        Type::Tuple(_) => "tuple",
        Type::Variant(_) => "variant",
        Type::Enum(_) => "enum",
        Type::Option(_) => "option",
        Type::Result(_) => "result",
        Type::Flags(_) => "flags",
        Type::Own(_) | Type::Borrow(_) => "resource",
        Type::Future(_) => "future",
        Type::Stream(_) => "stream",
        Type::ErrorContext => "error-context",
        Type::FixedLengthList(_) => "list",
    }
}
