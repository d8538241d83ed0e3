//! Declares the tools of a plain component from its types, its `plugin.toml` and its imports.

use std::borrow::Cow;

use toolbay_capabilities::bindings::types::{Capability, ToolDef, ToolTraits};
use toolbay_core::tool::manifest::{CapabilityDeclaration, Manifest, ToolManifest};
use toolbay_policy::capability::CapabilityKind;
use toolbay_policy::excerpt::one_line;
use toolbay_sandbox::engine::Engine;
use wasmtime::component::types::Type;

use super::{
    ComponentSections, ExportPath, ExportedFunction, PlainComponent, ToolEntryPoint, functions, names, schema,
};
use crate::error::LoadError;
use crate::plugins::bindings::about::exports::toolbay::plugin::about::PluginInfo;

/// Maximum size of a schema derived from types, in bytes. A model reads it in each turn.
const MAX_SCHEMA: usize = 64 << 10;
/// Exports that the JavaScript and Python toolchains add for themselves.
const TOOLCHAIN_EXPORTS: [(Option<&str>, &str); 2] = [(None, "init"), (Some("exports"), "")];

/// The declaration of a plain component.
pub(crate) struct Declaration {
    pub(crate) about: Option<PluginInfo>,
    pub(crate) tools: Vec<(ToolDef, ToolEntryPoint)>,
    /// Exports that are not tools, with the reasons.
    pub(crate) left_out: Vec<String>,
}

/// Declares a component by its types, its `plugin.toml` and its imports.
///
/// # Errors
/// The file is invalid, or the component has no tools.
pub(crate) fn declare(
    engine: &Engine,
    component: &PlainComponent,
    sections: &ComponentSections,
    imports: &[String],
) -> Result<Declaration, LoadError> {
    let functions = functions(engine, &component.ty())?;
    let implied = implied_capabilities(imports);
    let mut declared = match &sections.manifest {
        Some(manifest) => declare_by_manifest(component, &functions, sections, manifest)?,
        None => declare_by_types(component, &functions, sections)?,
    };
    for (tool, _) in &mut declared.tools {
        let manifest_tool = sections.manifest.as_ref().and_then(|manifest| manifest.tools.get(&tool.name));
        tool.capabilities = match manifest_tool.and_then(|manifest_tool| manifest_tool.needs.as_ref()) {
            Some(needs) => needs.iter().map(capability).collect(),
            None => implied.clone(),
        };
    }
    Ok(declared)
}

/// Without a `plugin.toml`, every function with a JSON form is a tool.
fn declare_by_types(
    component: &PlainComponent,
    functions: &[ExportedFunction],
    sections: &ComponentSections,
) -> Result<Declaration, LoadError> {
    let (mut tools, mut left_out) = (Vec::new(), Vec::new());
    let exports: Vec<ExportPath> = functions.iter().map(|function| function.export.clone()).collect();
    for (function, name) in functions.iter().zip(names::tool_names(&exports)) {
        let made = match (is_toolchain_export(&function.export), name) {
            (true, _) => Err("the toolchain added it".to_owned()),
            (false, None) => Err("others have the same name; name it in the `plugin.toml`".to_owned()),
            (false, Some(name)) => function_tool(name, function, sections, None),
        };
        match made {
            Ok(tool) => tools.push((tool, ToolEntryPoint::Function(function.export.clone()))),
            Err(why) => {
                left_out.push(format!("its function `{}` is not a tool: {why}", shorten(&function.export)));
            }
        }
    }
    if tools.is_empty() {
        return Err(no_tools_error(component, &left_out));
    }
    Ok(Declaration { about: None, tools, left_out })
}

/// With a `plugin.toml`, only its tools are declared.
fn declare_by_manifest(
    component: &PlainComponent,
    functions: &[ExportedFunction],
    sections: &ComponentSections,
    manifest: &Manifest,
) -> Result<Declaration, LoadError> {
    let mut tools = Vec::new();
    for (name, manifest_tool) in &manifest.tools {
        let bad =
            |problem: String| LoadError::Metadata(format!("its `plugin.toml`: [tools.{name}]: {problem}"));
        if let Some(template) = manifest_tool.request().map_err(bad)? {
            if !component.is_handler() {
                return Err(bad(
                    "the component does not handle HTTP: it exports neither `wasi:http/incoming-handler@0.2` nor \
                     `wasi:http/handler@0.3`"
                        .to_owned(),
                ));
            }
            let tool = described_tool(name, manifest_tool).map_err(bad)?;
            tools.push((tool, ToolEntryPoint::Handler(template)));
            continue;
        }
        tools.push(match manifest_tool.template().map_err(bad)? {
            Some(_) if !component.is_program() => {
                return Err(bad(
                    "the component is not a program: it does not export `wasi:cli/run`".to_owned()
                ));
            }
            Some(template) => {
                (described_tool(name, manifest_tool).map_err(bad)?, ToolEntryPoint::Program(template))
            }
            None => {
                let wanted = manifest_tool.export.as_deref().unwrap_or_default();
                let found = functions.iter().find(|function| function.export.matches(wanted));
                let function =
                    found.ok_or_else(|| bad(format!("the component exports no function `{wanted}`")))?;
                let tool =
                    function_tool(name.clone(), function, sections, Some(manifest_tool)).map_err(bad)?;
                (tool, ToolEntryPoint::Function(function.export.clone()))
            }
        });
    }
    Ok(Declaration { about: about(manifest), tools, left_out: Vec::new() })
}

impl ExportPath {
    fn matches(&self, wanted: &str) -> bool {
        self.to_string() == wanted
    }
}

fn is_toolchain_export(export: &ExportPath) -> bool {
    TOOLCHAIN_EXPORTS.iter().any(|(interface, function)| match interface {
        Some(interface) => export.interface.as_deref() == Some(*interface),
        None => export.interface.is_none() && export.function == *function,
    })
}

/// The error for a component without tools.
fn no_tools_error(component: &PlainComponent, left_out: &[String]) -> LoadError {
    let kind = match (component.is_program(), component.is_handler()) {
        (true, _) => Some("a program"),
        (false, true) => Some("an HTTP handler"),
        (false, false) => None,
    };
    let why = match (kind, left_out.split_first()) {
        (Some(kind), _) => format!(
            "it is {kind}: add a file NAME.plugin.toml next to it that declares its tools \
             (docs/how-to/plain-components.md)"
        ),
        (None, None) => {
            "it exports neither `toolbay:plugin/tools` nor `toolbay:plugin/reducers` nor a function"
                .to_owned()
        }
        (None, Some((first, []))) => first.clone(),
        (None, Some((first, rest))) => format!("{first}; and {} more", rest.len()),
    };
    LoadError::WrongWorld(format!("is not a Toolbay plugin and has no tools: {why}"))
}

/// Declares a function as a tool.
fn function_tool(
    name: String,
    function: &ExportedFunction,
    sections: &ComponentSections,
    manifest_tool: Option<&ToolManifest>,
) -> Result<ToolDef, String> {
    if function.export.function.starts_with('[') {
        return Err("it creates or uses a resource, which has no JSON form".to_owned());
    }
    let (mut input, answer) = schema::function_schemas(&function.ty)?;
    if let Some(manifest_tool) = manifest_tool {
        manifest_tool.add_arguments_to(&mut input)?;
    }
    let input = schema_text(&input)?;
    let output = answer.schema().map(|schema| schema_text(&schema)).transpose()?;
    let comment = || sections.comment(&function.export).map(str::to_owned);
    let description =
        manifest_tool.and_then(|manifest_tool| manifest_tool.description.clone()).or_else(comment);
    let description = description.unwrap_or_else(|| signature(function));
    tool_def(name, description, input, output, manifest_tool)
}

fn schema_text(schema: &serde_json::Value) -> Result<String, String> {
    let text = schema.to_string();
    if text.len() > MAX_SCHEMA {
        return Err(format!(
            "the schema of its types has {} bytes, but the limit is {MAX_SCHEMA}",
            text.len()
        ));
    }
    Ok(text)
}

/// Declares a program or a handler as a tool.
fn described_tool(name: &str, manifest_tool: &ToolManifest) -> Result<ToolDef, String> {
    let description = manifest_tool.description.clone().ok_or("it has no `description`")?;
    let output = manifest_tool.output.as_ref().map(wrap_output).as_ref().map(ToString::to_string);
    tool_def(
        name.to_owned(),
        description,
        manifest_tool.input_schema().to_string(),
        output,
        Some(manifest_tool),
    )
}

/// Wraps the schema of a program's output in an object, like the results of functions, unless it describes an object.
fn wrap_output(schema: &serde_json::Value) -> serde_json::Value {
    if schema.get("type").and_then(serde_json::Value::as_str) == Some("object") {
        return schema.clone();
    }
    serde_json::json!({"type": "object", "properties": {"result": schema}, "required": ["result"]})
}

fn tool_def(
    name: String,
    description: String,
    input_schema: String,
    output_schema: Option<String>,
    manifest_tool: Option<&ToolManifest>,
) -> Result<ToolDef, String> {
    let timeout = manifest_tool.and_then(|manifest_tool| manifest_tool.timeout);
    Ok(ToolDef {
        name,
        title: manifest_tool.and_then(|manifest_tool| manifest_tool.title.clone()),
        description,
        input_schema,
        output_schema,
        toolset: manifest_tool.and_then(|manifest_tool| manifest_tool.toolset.clone()),
        tags: manifest_tool.map(|manifest_tool| manifest_tool.tags.clone()).unwrap_or_default(),
        traits: manifest_tool
            .map_or(Ok(ToolTraits::empty()), |manifest_tool| traits(&manifest_tool.traits))?,
        max_result_chars: manifest_tool.and_then(|manifest_tool| manifest_tool.max_result_chars),
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
            other => return Err(format!("`{}` is not a trait of the contract", one_line(other, 80))),
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

fn capability(need: &CapabilityDeclaration) -> Capability {
    Capability {
        kind: need.kind.clone(),
        target: need.target.clone(),
        optional: need.optional,
        reason: need.reason.clone(),
    }
}

/// The capabilities that a component implies by its imports. It gets those of them that are granted.
fn implied_capabilities(imports: &[String]) -> Vec<Capability> {
    /// The prefix of an import, and the capability that it implies.
    const WANTS: [(&str, CapabilityKind, &str); 16] = [
        ("wasi:filesystem/", CapabilityKind::FsRead, "**"),
        ("wasi:filesystem/", CapabilityKind::FsWrite, "**"),
        ("wasi:http/", CapabilityKind::Net, "https://*:*"),
        ("wasi:http/", CapabilityKind::Net, "http://*:*"),
        ("wasi:sockets/tcp", CapabilityKind::Net, "tcp://*:*"),
        ("wasi:sockets/udp", CapabilityKind::Net, "udp://*:*"),
        ("wasi:keyvalue/", CapabilityKind::Kv, "tool"),
        ("wasi:keyvalue/", CapabilityKind::Kv, "plugin"),
        ("wasi:keyvalue/", CapabilityKind::Kv, "session"),
        ("wasi:keyvalue/", CapabilityKind::Kv, "agent"),
        ("wasi:sockets/types@0.3.", CapabilityKind::Net, "tcp://*:*"),
        ("wasi:sockets/types@0.3.", CapabilityKind::Net, "udp://*:*"),
        ("wasi:clocks/wall-clock@", CapabilityKind::Clock, "wall"),
        ("wasi:clocks/system-clock@0.3.", CapabilityKind::Clock, "wall"),
        ("wasi:random/random@", CapabilityKind::Random, "bytes"),
        ("wasi:random/insecure@", CapabilityKind::Random, "bytes"),
    ];
    let mut capabilities: Vec<Capability> = Vec::new();
    for (begin, kind, target) in WANTS {
        let Some(import) = imports.iter().find(|import| import.starts_with(begin)) else { continue };
        if !capabilities.iter().any(|one| one.kind == kind.as_str() && one.target == target) {
            capabilities.push(Capability {
                kind: kind.as_str().to_owned(),
                target: target.to_owned(),
                optional: true,
                reason: Some(format!("it imports `{}`", one_line(import, 120))),
            });
        }
    }
    capabilities
}

fn shorten(export: &ExportPath) -> String {
    one_line(&export.to_string(), 120)
}

/// The description of a function whose author gives none.
fn signature(function: &ExportedFunction) -> String {
    let params: Vec<String> =
        function.ty.params().map(|(name, ty)| format!("{name}: {}", wit_type_name(&ty))).collect();
    let result =
        function.ty.results().next().map_or_else(String::new, |ty| format!(" -> {}", wit_type_name(&ty)));
    let text = format!("{}({}){result}", function.export, params.join(", "));
    format!("The function {}. Its author gives no description.", one_line(&text, 1000))
}

/// Writes a type as WIT does. Components do not carry the names of records, variants, enums and flags.
/// [`schema::function_schemas`] has bounded the type.
fn wit_type_name(ty: &Type) -> Cow<'static, str> {
    let generic = |name: &str, parameters: &[Option<Type>]| {
        let parameter = |ty: &Option<Type>| ty.as_ref().map_or(Cow::Borrowed("_"), wit_type_name);
        let parameters: Vec<_> = parameters.iter().map(parameter).collect();
        Cow::Owned(format!("{name}<{}>", parameters.join(", ")))
    };
    Cow::Borrowed(match ty {
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
        Type::List(list) => return generic("list", &[Some(list.ty())]),
        Type::Tuple(tuple) => return generic("tuple", &tuple.types().map(Some).collect::<Vec<_>>()),
        Type::Option(option) => return generic("option", &[Some(option.ty())]),
        Type::Result(result) => match (result.ok(), result.err()) {
            (None, None) => "result",
            (ok, None) => return generic("result", &[ok]),
            (ok, err) => return generic("result", &[ok, err]),
        },
        Type::Record(_) => "record",
        Type::Variant(_) => "variant",
        Type::Enum(_) => "enum",
        Type::Flags(_) => "flags",
        // No function with one of these is a tool.
        Type::Own(_) | Type::Borrow(_) => "resource",
        Type::Future(_) => "future",
        Type::Stream(_) => "stream",
        Type::Map(_) => "map",
        Type::ErrorContext => "error-context",
        Type::FixedLengthList(_) => "list",
    })
}
