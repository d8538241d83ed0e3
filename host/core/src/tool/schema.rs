//! JSON Schema for arguments and results. A schema is compiled when its tool is first called.
//!
//! The host executes schemas from guests, so it checks them before compilation. Size and depth are limited. Remote
//! references are refused, since MCP 2026-07-28 forbids fetching them. A reference must not lead back to itself on the
//! same value. The fan-out of references is limited, since 2 KB of schema could otherwise expand to 2^40 checks.
//! Patterns run on a linear-time regex engine.
//!
//! | whose schema | read by | what is wrong with it |
//! |---|---|---|
//! | the embedder's | [`Schema::input`], [`Schema::output`] | is an error of the program |
//! | of a plugin, an MCP server or an OpenAPI document | [`SchemaReader`] | costs one keyword, which [`Schema::dropped`] names |

mod bounds;
mod dropped;
mod explanation;
mod foreign;
mod keyword;
mod pattern;
mod portable;
mod salvage;
mod translate;
mod variants;

use std::fmt::{self, Display, Write as _};
use std::sync::{Arc, OnceLock};

use jsonschema::{Draft, PatternOptions, ValidationOptions, Validator};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolbay_policy::excerpt;

use crate::tool::json;
use bounds::SchemaCost;

pub use dropped::{DroppedKeyword, DroppedKeywords};
pub use foreign::SchemaReader;
pub(crate) use keyword::subschemas;
pub use portable::{to_portable_form, without_null};

/// Largest schema text, in bytes.
pub const MAX_SCHEMA_BYTES: usize = 256 << 10;
/// Most applications of a subschema to a value in one check, which take about 1 s.
const MAX_WORK: u64 = 100_000_000;
/// Most work for patterns in one check: bytes of text times an upper bound of the pattern states. It takes a few
/// seconds at worst.
const MAX_MATCHING: u64 = 1_000_000_000;
/// Most values of an instance that are measured before it is known to be large.
const MAX_MEASURED: usize = 10_000;
/// Steps to compile one value of a schema, apart from its patterns.
const COMPILE_STEPS: u64 = 100;
/// Most findings in one message.
const MAX_FINDINGS: usize = 3;
/// Longest message, in characters: nested variants have their own findings.
const MAX_MESSAGE_CHARS: usize = 1500;
/// Longest name that [`Mismatch::unquoted`] shows, in bytes.
const MAX_STEP: usize = 32;
/// Longest pointer that it shows, in bytes.
const MAX_KEYWORD: usize = 100;
/// Longest finding, in characters.
const MAX_FINDING_CHARS: usize = 240;

/// A checked schema, cheap to clone. Its validator is compiled at the first validation and then kept, so listing
/// thousands of tools compiles none.
#[derive(Clone, Serialize, Deserialize)]
pub struct Schema {
    /// What clients and models see.
    shown: Arc<Value>,
    /// What values must match, if it is not the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checked: Option<Arc<Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dropped: Option<Arc<DroppedKeywords>>,
    #[serde(skip)]
    compiled: Arc<OnceLock<Result<CompiledSchema, SchemaError>>>,
}

struct CompiledSchema {
    validator: Validator,
    cost: SchemaCost,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({})", self.checked_value())
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        (&self.shown, &self.checked, &self.dropped) == (&other.shown, &other.checked, &other.dropped)
    }
}

/// The reason why a schema was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SchemaError(String);

/// A mismatch between a value and a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The JSON pointer of the first finding.
    pub pointer: String,
    /// Up to three findings, for a model. They quote the value.
    pub message: String,
    /// The JSON pointer of the keyword in the schema that the first finding is about; empty if there is none.
    pub keyword: String,
}

impl Mismatch {
    /// The keyword, in a text without the value and without names that could be sentences.
    #[must_use]
    pub fn unquoted(&self) -> String {
        let is_plain = |step: &str| {
            step.len() <= MAX_STEP && step.bytes().all(|b| b.is_ascii_alphanumeric() || b"_$.-".contains(&b))
        };
        let steps = self.keyword.split('/').skip(1);
        let mut shown = String::new();
        for step in steps.map(|step| if is_plain(step) { step } else { "*" }) {
            if shown.len() + step.len() > MAX_KEYWORD {
                shown.push_str("/…");
                break;
            }
            shown.push('/');
            shown.push_str(step);
        }
        match shown.is_empty() {
            true => "it cannot be checked in full".to_owned(),
            false => format!("see the keyword `{shown}`"),
        }
    }
}

impl Schema {
    /// Parses and checks an input schema, whose root must have `"type": "object"`.
    ///
    /// # Errors
    /// The schema is invalid or exceeds a limit.
    pub fn input(text: &str) -> Result<Self, SchemaError> {
        let schema = Self::output(text)?;
        if schema.shown.get("type").and_then(Value::as_str) != Some("object") {
            return Err(SchemaError(
                "the root of an input schema must have `\"type\": \"object\"`".to_owned(),
            ));
        }
        Ok(schema)
    }

    /// Parses and checks an output schema, which can have any type.
    ///
    /// # Errors
    /// The schema is invalid or exceeds a limit.
    pub fn output(text: &str) -> Result<Self, SchemaError> {
        if text.len() > MAX_SCHEMA_BYTES {
            return Err(SchemaError(format!(
                "the schema has {} bytes; the limit is {MAX_SCHEMA_BYTES} bytes",
                text.len()
            )));
        }
        let value =
            json::parse(text).map_err(|e| SchemaError(format!("the schema is not valid JSON: {e}")))?;
        if !value.is_object() {
            return Err(SchemaError("the schema is not a JSON object".to_owned()));
        }
        // Compiled here only to check it, and again at the first call: most tools are only listed, and a validator
        // takes several times the memory of its schema.
        compile(&value)?;
        Ok(Self::from_trusted(value))
    }

    /// Wraps a schema that [`Schema::input`] or [`Schema::output`] of this version has accepted before. The first
    /// validation checks it again.
    #[must_use]
    pub fn from_trusted(value: Value) -> Self {
        Self { shown: Arc::new(value), checked: None, dropped: None, compiled: Arc::default() }
    }

    /// A foreign schema, which was compiled before.
    fn from_parts(shown: Value, checked: Value, dropped: Option<DroppedKeywords>) -> Self {
        let checked = (checked != shown).then(|| Arc::new(checked));
        Self { shown: Arc::new(shown), checked, dropped: dropped.map(Arc::new), compiled: Arc::default() }
    }

    /// The same schema with another form for clients and models. Values must match the same as before.
    #[must_use]
    pub fn with_shown(&self, shown: Value) -> Self {
        let checked = Arc::clone(self.checked.as_ref().unwrap_or(&self.shown));
        Self { shown: Arc::new(shown), checked: Some(checked), ..self.clone() }
    }

    /// The same schema. Clients see tuples in a form that does not fix which item has which schema, since many refuse
    /// `prefixItems`.
    #[must_use]
    pub fn with_loose_tuples(&self) -> Self {
        let mut shown = Value::clone(&self.shown);
        portable::loosen_tuples(&mut shown);
        if shown == *self.shown { self.clone() } else { self.with_shown(shown) }
    }

    /// The schema for clients and models.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.shown
    }

    /// The schema that values must match. It can be weaker than the one for clients, since clients read patterns that
    /// this host cannot evaluate.
    #[must_use]
    pub fn checked_value(&self) -> &Value {
        self.checked.as_ref().unwrap_or(&self.shown)
    }

    /// The keywords that are not checked; `None` if all are.
    #[must_use]
    pub fn dropped(&self) -> Option<&DroppedKeywords> {
        self.dropped.as_deref()
    }

    /// Whether the schema exceeded a limit, so that it has only the outline of its members.
    #[must_use]
    pub fn is_outline(&self) -> bool {
        let lost = self.dropped().map(DroppedKeywords::listed).unwrap_or_default();
        lost.iter().any(|one| one.pointer.is_empty())
    }

    /// Validates a value. This can take seconds; worker threads use [`Schema::match_within`].
    ///
    /// # Errors
    /// The value does not match; the error has the first few findings.
    pub fn check(&self, instance: &Value) -> Result<(), Mismatch> {
        if self.matches(instance)? { Ok(()) } else { Err(self.explain(instance)) }
    }

    /// Whether a value matches. `None` if the validation takes more than `steps` steps, of about ten nanoseconds each.
    #[must_use]
    pub fn match_within(&self, steps: u64, instance: &Value) -> Option<Result<bool, Mismatch>> {
        // Measuring a large value also takes long.
        let mut left = MAX_MEASURED;
        let size = ValueSize::measure_within(instance, &mut left)?;
        (self.match_steps(&size) <= steps).then(|| self.match_measured(instance, &size))
    }

    /// Whether a value matches.
    ///
    /// # Errors
    /// The value is too large for the schema, or the schema cannot be compiled.
    pub fn matches(&self, instance: &Value) -> Result<bool, Mismatch> {
        self.match_measured(instance, &ValueSize::measure(instance))
    }

    /// An estimate of the steps to match a value of this size.
    fn match_steps(&self, ValueSize { nodes, bytes }: &ValueSize) -> u64 {
        match self.compiled.get() {
            Some(Ok(CompiledSchema { cost, .. })) => {
                let patterns = bytes.saturating_mul(cost.patterns) / 3;
                nodes.saturating_mul(cost.steps_per_value()).saturating_add(patterns)
            }
            Some(Err(_)) => 0,
            None => {
                let root = self.checked_value();
                let compile = ValueSize::measure(root).nodes.saturating_mul(COMPILE_STEPS);
                compile
                    .saturating_add(bounds::pattern_work(root))
                    .saturating_add(*nodes)
                    .saturating_add(*bytes)
            }
        }
    }

    fn match_measured(
        &self,
        instance: &Value,
        ValueSize { nodes, bytes }: &ValueSize,
    ) -> Result<bool, Mismatch> {
        let root = self.checked_value();
        let CompiledSchema { validator, cost } = match self.compiled.get_or_init(|| compile(root)) {
            Ok(compiled) => compiled,
            Err(error) => return Err(Mismatch::without_place(error.to_string())),
        };
        if nodes.saturating_mul(cost.steps_per_value()) > MAX_WORK {
            return Err(Mismatch::without_place(format!(
                "it has {nodes} values, too many for a schema with {} subschemas",
                cost.subschemas
            )));
        }
        if bytes.saturating_mul(cost.patterns) > MAX_MATCHING {
            return Err(Mismatch::without_place(format!(
                "it has {bytes} bytes of text, too many for the patterns of the schema"
            )));
        }
        Ok(validator.is_valid(instance))
    }

    /// Whether [`Schema::explain`] takes at most `steps` steps, of about ten nanoseconds each. This method takes no more
    /// steps itself.
    #[must_use]
    pub fn explains_within(&self, steps: u64, instance: &Value) -> bool {
        explanation::takes_at_most(steps, self.checked_value(), instance)
    }

    /// Explains why a value does not match. Call it only if [`Schema::matches`] returned `false`.
    #[must_use]
    pub fn explain(&self, instance: &Value) -> Mismatch {
        let root = self.checked_value();
        let too_large = || {
            Mismatch::without_place(
                "it does not match the schema (it is too large to find the place)".to_owned(),
            )
        };
        let Some(Ok(CompiledSchema { validator, .. })) = self.compiled.get() else { return too_large() };
        if !explanation::takes_at_most(explanation::MAX_STEPS, root, instance) {
            return too_large();
        }
        let (mut pointer, mut keyword) = (String::new(), String::new());
        let mut message = String::new();
        for (n, error) in validator.iter_errors(instance).take(MAX_FINDINGS).enumerate() {
            let finding = variants::describe_error(&error, root);
            if n == 0 {
                pointer = cut(&finding.pointer);
                error.schema_path().as_str().clone_into(&mut keyword);
            } else {
                message.push_str("; ");
            }
            let place = variants::shown_pointer(error.instance_path().as_str());
            _ = write!(message, "{place}: {}", finding.text);
        }
        if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE_CHARS) {
            message.truncate(end);
            message.push('…');
        }
        Mismatch { pointer, message, keyword }
    }
}

impl Mismatch {
    fn without_place(message: String) -> Self {
        Self { pointer: String::new(), message, keyword: String::new() }
    }
}

fn compile(schema: &Value) -> Result<CompiledSchema, SchemaError> {
    let cost = bounds::check(schema)?;
    let validator = validation_options()
        .build(&pattern::for_engine(schema))
        .map_err(|e| SchemaError(format!("the schema is invalid: {}", cut(&e.to_string()))))?;
    Ok(CompiledSchema { validator, cost })
}

/// The options of every validator: 2020-12, and patterns that run in linear time.
fn validation_options() -> ValidationOptions<'static> {
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .with_pattern_options(PatternOptions::regex().size_limit(1 << 20))
}

/// The size of a value to validate.
struct ValueSize {
    /// The number of values, including nested ones.
    nodes: u64,
    /// The bytes of all strings, including keys.
    bytes: u64,
}

impl ValueSize {
    fn measure(value: &Value) -> Self {
        let mut left = usize::MAX;
        Self::measure_within(value, &mut left).unwrap_or(Self { nodes: u64::MAX, bytes: u64::MAX })
    }

    /// Measures a value with at most `left` values inside; `None` if it has more.
    fn measure_within(value: &Value, left: &mut usize) -> Option<Self> {
        let mut size = Self { nodes: 1, bytes: 0 };
        match value {
            Value::Object(map) => {
                *left = left.checked_sub(map.len())?;
                for (key, child) in map {
                    size.bytes += key.len() as u64;
                    size.add(&Self::measure_within(child, left)?);
                }
            }
            Value::Array(items) => {
                *left = left.checked_sub(items.len())?;
                for child in items {
                    size.add(&Self::measure_within(child, left)?);
                }
            }
            Value::String(text) => size.bytes = text.len() as u64,
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        Some(size)
    }

    fn add(&mut self, inner: &Self) {
        self.nodes += inner.nodes;
        self.bytes += inner.bytes;
    }
}

/// Cuts an untrusted text for a message.
fn cut(text: &str) -> String {
    excerpt::one_line(text, MAX_FINDING_CHARS)
}

/// Formats the beginning of a value for a message. The rest is not formatted: a value can have megabytes.
fn cut_value(value: &dyn Display) -> String {
    let mut beginning = Beginning(String::new());
    // Writing fails where the shown part ends.
    _ = write!(beginning, "{value}");
    cut(&beginning.0)
}

/// The beginning of a text, a little longer than a message shows.
struct Beginning(String);

impl fmt::Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let most = 4 * (MAX_FINDING_CHARS + 1);
        let room = most.saturating_sub(self.0.len());
        self.0.push_str(text.get(..text.floor_char_boundary(room)).unwrap_or_default());
        if self.0.len() < most { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests;
