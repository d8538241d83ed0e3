//! The fuzzed parsers, and the properties that must hold for every input.

use std::fmt::Debug;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;
use toolbay::core::tool::json;
use toolbay::core::tool::manifest::Manifest;
use toolbay::core::tool::schema::Schema;
use toolbay::policy::capability::attachment::AttachmentRule;
use toolbay::policy::capability::environment::EnvRule;
use toolbay::policy::capability::invoke_rule::InvokeRule;
use toolbay::policy::capability::kv::KvScope;
use toolbay::policy::capability::net::NetRule;
use toolbay::policy::capability::path_rule::PathRule;
use toolbay::policy::capability::program::ProgramRule;
use toolbay::policy::capability::secret::SecretRule;
use toolbay::policy::limits::table::LimitTable as _;
use toolbay::policy::name::{QualifiedName, ToolName};
use toolbay::policy::rule::{GrantRule, covers, intersect_lists};
use toolbay::policy::{excerpt, quantity};
use toolbay::{Host, PluginId, Policy};

use crate::FuzzVerdict::{self, Refused, Taken};

/// A parser of untrusted bytes.
#[derive(Debug)]
pub struct FuzzTarget {
    /// The name of the target and of its folder of seeds.
    pub name: &'static str,
    /// Tries one input. The error is a violated property.
    pub run: fn(&[u8]) -> Result<FuzzVerdict, String>,
    /// Further seeds.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// The largest input, in bytes.
    pub most_bytes: usize,
    /// The longest time for one input.
    pub most_time: Duration,
}

const fn target(
    name: &'static str,
    run: fn(&[u8]) -> Result<FuzzVerdict, String>,
    most_bytes: usize,
) -> FuzzTarget {
    FuzzTarget { name, run, seeds: Vec::new, most_bytes, most_time: Duration::from_secs(1) }
}

/// All targets.
pub const TARGETS: &[FuzzTarget] = &[
    target("policy", policy, 4096),
    target("rule-reach", rule::<PathRule>, 2048),
    target("rule-net", rule::<NetRule>, 2048),
    target("rule-program", rule::<ProgramRule>, 2048),
    target("rule-secret", rule::<SecretRule>, 2048),
    target("rule-kv", rule::<KvScope>, 2048),
    target("rule-env", rule::<EnvRule>, 2048),
    target("rule-attachment", rule::<AttachmentRule>, 2048),
    target("rule-invoke", rule::<InvokeRule>, 2048),
    target("name", name, 512),
    target("quantity", quantities, 64),
    target("text", one_line, 4096),
    target("json", json_texts, 64 << 10),
    target("schema", schema, 8192),
    target("manifest", manifest, 8192),
    // Each input is compiled as a component, so the number of inputs is low.
    FuzzTarget { seeds: tool_lines, most_time: LOAD, ..target("definitions", definitions, 4000) },
    FuzzTarget { seeds: components, most_time: LOAD, ..target("load", load, 256 << 10) },
];

/// The longest time for loading. Compiling a small component takes a second on an idle machine.
const LOAD: Duration = Duration::from_secs(20);

fn workspace() -> &'static Path {
    Path::new("/home/user/work")
}

fn lossy(input: &[u8]) -> String {
    String::from_utf8_lossy(input).into_owned()
}

fn must(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// People and models read errors, so an error is bounded and contains no terminal control characters.
fn sound_error(error: &str) -> Result<(), String> {
    must(error.chars().count() <= 20_000, || format!("an error of {} characters", error.chars().count()))?;
    must(!error.contains('\u{1b}'), || format!("an escape sequence in an error: {error:.200?}"))
}

fn policy(input: &[u8]) -> Result<FuzzVerdict, String> {
    let source = lossy(input);
    let read = || Policy::parse(&source, Path::new("/etc/toolbay"), Some(workspace()));
    match (read(), read()) {
        (Ok(first), Ok(again)) => {
            must(format!("{first:?}") == format!("{again:?}"), || {
                "it is read otherwise the second time".to_owned()
            })?;
            must(first.workspace().is_absolute(), || format!("the workspace is {:?}", first.workspace()))?;
            must(first.host().check_ranges().is_ok(), || "limits that cannot be had are taken".to_owned())?;
            let limits = first.limits(&PluginId::new("p").map_err(|e| e.to_string())?, None);
            must(limits.memory <= toolbay::policy::limits::MAX_MEMORY_BYTES, || format!("{limits:?}"))?;
            Ok(Taken)
        }
        (Err(_), Err(_)) => Ok(Refused),
        (first, _) => Err(format!("it is taken once: {}", first.is_ok())),
    }
}

/// The laws of `GrantRule`, for two lines.
fn rule<R: GrantRule + Debug>(input: &[u8]) -> Result<FuzzVerdict, String> {
    let source = lossy(input);
    let mut lines = source.splitn(3, '\n');
    let mut next = || R::parse(lines.next().unwrap_or(""), workspace());
    let (a, b, c) = (next(), next(), next());
    for error in [&a, &b, &c].into_iter().filter_map(|rule| rule.as_ref().err()) {
        must(error.len() <= 16 * source.len() + 2000, || format!("{} bytes of error", error.len()))?;
    }
    let Ok(a) = a else { return Ok(Refused) };
    alone(&a)?;
    // A line of a policy is one line. It has terminal control characters only if the rule has them.
    let controls = |text: &str| text.chars().filter(|c| c.is_control()).count();
    for shown in [a.show(workspace()), a.proposed_line(workspace())] {
        must(controls(&shown) <= controls(&source), || format!("{a:?} is shown as {shown:?}"))?;
    }
    let Ok(b) = b else { return Ok(Taken) };
    alone(&b)?;
    let (both, other_way) = (a.intersect(&b), b.intersect(&a));
    must(both == other_way, || format!("{a:?} and {b:?} meet in {both:?}, the other way in {other_way:?}"))?;
    if let Some(both) = &both {
        alone(both)?;
        must(covers(&a, both) && covers(&b, both), || format!("{both:?} is not in both of {a:?} and {b:?}"))?;
    }
    if let Ok(c) = c {
        let lists = intersect_lists(&[a.clone(), b.clone()], std::slice::from_ref(&c));
        let inside = |rule: &R| covers(&c, rule) && (covers(&a, rule) || covers(&b, rule));
        must(lists.iter().all(inside), || format!("{lists:?} of {a:?}, {b:?} and {c:?}"))?;
    }
    Ok(Taken)
}

fn alone<R: GrantRule + Debug>(rule: &R) -> Result<(), String> {
    let met = rule.intersect(rule);
    must(met.as_ref() == Some(rule), || format!("{rule:?} meets itself in {met:?}"))?;
    let shown = rule.show(workspace());
    let read = R::parse(&shown, workspace());
    must(read.as_ref() == Ok(rule), || format!("{rule:?} is shown as {shown:?} and read back as {read:?}"))
}

fn name(input: &[u8]) -> Result<FuzzVerdict, String> {
    let source = lossy(input);
    let (id, tool) = source.split_once('\n').unwrap_or((&source, "tool"));
    let (id, tool) = match (PluginId::new(id), ToolName::new(tool)) {
        (Ok(id), Ok(tool)) => (id, tool),
        (id, tool) => {
            let errors = [id.err(), tool.err()].into_iter().flatten();
            errors.map(|e| e.to_string()).try_for_each(|error| sound_error(&error))?;
            return Ok(Refused);
        }
    };
    let Ok(name) = QualifiedName::join(&id, &tool) else { return Ok(Refused) };
    let seam = name.as_str().split_once("__");
    must(seam == Some((id.as_str(), tool.as_str())), || format!("{name:?} comes apart as {seam:?}"))?;
    must(name.as_str().len() <= 64 && name.as_str().is_ascii(), || format!("{name:?}"))?;
    Ok(Taken)
}

fn quantities(input: &[u8]) -> Result<FuzzVerdict, String> {
    let source = lossy(input);
    let (bytes, duration) = (quantity::parse_bytes(&source), quantity::parse_duration(&source));
    if let Ok(bytes) = bytes {
        let shown = quantity::show_bytes(bytes);
        must(quantity::parse_bytes(&shown) == Ok(bytes), || format!("{bytes} is shown as {shown}"))?;
    }
    if let Ok(duration) = duration {
        let shown = quantity::show_duration(duration);
        must(quantity::parse_duration(&shown) == Ok(duration), || {
            format!("{duration:?} is shown as {shown}")
        })?;
    }
    Ok(if bytes.is_ok() || duration.is_ok() { Taken } else { Refused })
}

fn one_line(input: &[u8]) -> Result<FuzzVerdict, String> {
    let shown = excerpt::one_line(&lossy(input), 100);
    must(!shown.chars().any(char::is_control), || format!("{shown:?}"))?;
    // An escaped character takes up to ten bytes.
    must(shown.chars().count() <= 1100, || format!("{} characters", shown.chars().count()))?;
    Ok(Taken)
}

fn json_texts(input: &[u8]) -> Result<FuzzVerdict, String> {
    let source = lossy(input);
    let (parsed, checked) = (json::parse(&source), json::check(&source));
    must(parsed.is_ok() == checked.is_ok(), || {
        format!("parsed: {:?}, checked: {checked:?}", parsed.as_ref().err())
    })?;
    let Ok(value) = parsed else { return Ok(Refused) };
    let written = value.to_string();
    let again =
        json::parse(&written).map_err(|e| format!("what was read is written so that it is not read: {e}"))?;
    must(again == value, || format!("{written:.200} is another value"))?;
    // A more lenient parser must read the same value.
    let lax: serde_json::Value =
        serde_json::from_str(&source).map_err(|e| format!("only we read it: {e}"))?;
    must(lax == value, || "others read another value".to_owned())?;
    Ok(Taken)
}

/// A schema and, after a NUL, a value for it.
fn schema(input: &[u8]) -> Result<FuzzVerdict, String> {
    let source = lossy(input);
    let (schema, value) = source.split_once('\0').unwrap_or((&source, "{}"));
    let (input, output) = (Schema::input(schema), Schema::output(schema));
    must(input.is_err() || output.is_ok(), || "taken for arguments, but not at all".to_owned())?;
    let schema = match output {
        Ok(schema) => schema,
        Err(error) => {
            sound_error(&error.to_string())?;
            return Ok(Refused);
        }
    };
    let stored = serde_json::to_string(schema.value()).map_err(|e| e.to_string())?;
    let again =
        Schema::from_trusted(json::parse(&stored).map_err(|e| format!("stored, it is not read: {e}"))?);
    let Ok(value) = json::parse(value) else { return Ok(Taken) };
    let (first, second) = (schema.check(&value), again.check(&value));
    must(first == second, || format!("{first:?}, and from the cache {second:?}"))?;
    if let Err(mismatch) = first {
        must(mismatch.message.len() <= 8000 && mismatch.pointer.len() <= 4000, || {
            format!("{mismatch:.200?}")
        })?;
    }
    Ok(Taken)
}

struct LoadingHost {
    runtime: tokio::runtime::Runtime,
    host: Host,
}

/// One host for all inputs, so that state left by one input affects the next.
fn sandbox() -> Result<&'static LoadingHost, String> {
    static SANDBOX: OnceLock<Result<LoadingHost, String>> = OnceLock::new();
    let make = || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|e| e.to_string())?;
        let text = "version = 1\n[limits]\nfuel = 100_000_000\ntimeout = \"2s\"";
        let policy = Policy::parse(text, Path::new("/"), None).map_err(|e| e.to_string())?;
        let host = Host::builder(policy).no_cache().build().map_err(|e| e.to_string())?;
        Ok(LoadingHost { runtime, host })
    };
    SANDBOX.get_or_init(make).as_ref().map_err(Clone::clone)
}

fn load(input: &[u8]) -> Result<FuzzVerdict, String> {
    let LoadingHost { runtime, host } = sandbox()?;
    let id = PluginId::new("fuzzed").map_err(|e| e.to_string())?;
    let loaded = runtime.block_on(host.load_bytes(id.clone(), input.to_vec()));
    let there = host.plugin("fuzzed").is_some();
    must(there == loaded.is_ok(), || format!("loaded: {}, registered: {there}", loaded.is_ok()))?;
    must(host.available_call_permits() == 64, || "a place stays taken".to_owned())?;
    let tools: Vec<_> = host
        .registry()
        .snapshot()
        .tools()
        .filter(|entry| entry.def.source.plugin().is_some())
        .map(|entry| entry.def.name.to_string())
        .collect();
    must(tools.iter().all(|name| name.starts_with("fuzzed__")), || format!("{tools:?}"))?;
    host.unload(&id);
    match loaded {
        Ok(_) => Ok(Taken),
        Err(error) => sound_error(&error.to_string()).map(|()| Refused),
    }
}

fn components() -> Vec<Vec<u8>> {
    let texts = [
        "(component)",
        "(component (core module (memory 1) (func (export \"f\") (param i32) (result i32) local.get 0)))",
        "(component (type (record (field \"a\" (list u8)))) (type (func (param \"a\" 0) (result string))))",
        "(component (core module $m (func (export \"f\"))) (core instance $i (instantiate $m)) (func (export \"f\") (canon lift (core func $i \"f\"))))",
        "(component (import \"wasi:cli/stdin@0.2.0\" (instance (export \"get-stdin\" (func)))))",
    ];
    let mut seeds: Vec<_> = texts.iter().filter_map(|text| wat::parse_str(text).ok()).collect();
    seeds.extend(std::fs::read(guest_artifacts::BENCH_ECHO));
    seeds
}

/// The buffer of `hostile_metadata_any`.
const MARK: &[u8] = b"<buffer of hostile_metadata_any>";

fn definitions(input: &[u8]) -> Result<FuzzVerdict, String> {
    static GUEST: OnceLock<(Vec<u8>, usize)> = OnceLock::new();
    let (guest, at) = GUEST.get_or_init(|| {
        let bytes = std::fs::read(guest_artifacts::HOSTILE_METADATA_ANY).unwrap_or_default();
        let at = bytes.windows(MARK.len()).position(|window| window == MARK).unwrap_or(usize::MAX);
        (bytes, at)
    });
    let mut component = guest.clone();
    // Text after the mark on its own line, cut to the size of the buffer.
    let input: Vec<u8> =
        std::iter::once(b'\n').chain(input.iter().copied()).take(4096 - MARK.len()).collect();
    let from = at.saturating_add(MARK.len());
    let place = component.get_mut(from..from.saturating_add(input.len()));
    place.ok_or("the guest has no buffer")?.copy_from_slice(&input);
    load(&component)
}

fn tool_lines() -> Vec<Vec<u8>> {
    let schema =
        r##"{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"string"}}}"##;
    [
        "one\tA tool.".to_owned(),
        format!("two\tAnother tool.\t{schema}\t{schema}\tTitle\tset\ttag,other\tfs-read $workspace/**\t{{\"k\":1}}\t1000"),
        format!("three\tWith\\nlines.\t{schema}\t-\t-\t-\t-\tnet https://example.com\t-\t0\nfour\tMore."),
    ]
    .map(String::into_bytes)
    .to_vec()
}

/// The manifest file of a component. For every such file, arguments of a model cannot become an option or end a text.
fn manifest(input: &[u8]) -> Result<FuzzVerdict, String> {
    let manifest = match Manifest::parse(&lossy(input)) {
        Ok(manifest) => manifest,
        Err(error) => return sound_error(&error).map(|()| Refused),
    };
    const OPTION: &str = "-canary";
    for (name, tool) in &manifest.tools {
        let Some(template) = tool.template()? else { continue };
        let all = |value: Value| tool.args.keys().map(|name| (name.clone(), value.clone())).collect();
        if let Ok(line) = template.fill(&all(Value::from(OPTION))) {
            let options = line.args.iter().take_while(|arg| *arg != "--");
            must(!options.into_iter().any(|arg| arg == OPTION), || {
                format!("`{name}`: an option: {:?}", line.args)
            })?;
        }
        if let Ok(line) = template.fill(&all(Value::from("a\0b"))) {
            let texts = line.args.iter().chain(line.env.iter().map(|(_, value)| value));
            must(texts.into_iter().all(|text| !text.contains('\0')), || format!("`{name}`: a zero byte"))?;
        }
    }
    Ok(Taken)
}
