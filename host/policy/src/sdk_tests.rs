//! What the SDKs have of the contract and of the policy is written from them: the kinds of capability, the traits of tools,
//! scopes, error codes, and the errors of `sdk/errors.toml`. `TOOLBAY_WRITE_DOCS=1` writes the files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::capability::{CapabilityKind, GrantKey};
use crate::limits::table::LimitTable as _;
use crate::limits::{CallLimits, HostLimits};
use crate::name::MAX_TOOL;
use crate::schema::without_links;

const ORIGIN: &str =
    "Generated from `wit`, `sdk/errors.toml` and the tables of `host/policy` by its `sdk_tests.rs`.";

/// A case of an enum, flags or variant of the contract.
struct Case {
    name: String,
    /// The type of what a case of a variant holds.
    holds: Option<String>,
    comment: String,
}

/// An error of the host, and the error of the tool made of it.
struct HostError {
    case: Case,
    code: String,
    subject: String,
    message: String,
}

/// The errors of an interface.
struct HostErrors {
    interface: String,
    /// The name of the variant: `file-error`.
    variant: String,
    /// What the message calls the argument of the author.
    of: String,
    errors: Vec<HostError>,
}

struct Contract {
    kinds: Vec<CapabilityKind>,
    traits: Vec<Case>,
    scopes: Vec<String>,
    codes: Vec<String>,
    errors: Vec<HostErrors>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The cases of the type that begins with these words in a file of the contract.
fn cases(file: &str, begins: &str) -> Vec<Case> {
    let text = read(&format!("wit/{file}.wit"));
    let (_, rest) =
        text.split_once(&format!("{begins} {{")).unwrap_or_else(|| panic!("no {begins} in {file}"));
    let (body, _) = rest.split_once('}').unwrap();
    let (mut all, mut comment) = (Vec::new(), Vec::new());
    for line in body.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            comment.push(text.trim());
            continue;
        }
        for case in line.split(',').map(str::trim).filter(|case| !case.is_empty()) {
            let (name, holds) =
                case.split_once('(').map_or((case, None), |(name, holds)| (name, Some(holds)));
            let holds = holds.map(|holds| holds.trim_end_matches(')').to_owned());
            all.push(Case { name: name.to_owned(), holds, comment: comment.join(" ") });
            comment.clear();
        }
    }
    all
}

fn names(cases: Vec<Case>) -> Vec<String> {
    cases.into_iter().map(|case| case.name).collect()
}

/// The errors of one table. Each case of the contract has an entry, and each entry is a case.
fn errors_of(interface: &str, table: &toml::Table) -> HostErrors {
    let texts = |key: &str| -> Vec<String> {
        let entry = table.get(key).unwrap_or_else(|| panic!("[{interface}] has no `{key}`"));
        entry.clone().try_into().unwrap()
    };
    let variant = match interface {
        "http-client" => "http-error".to_owned(),
        plural => {
            let one =
                ["files", "secrets", "attachments"].contains(&plural).then(|| plural.trim_end_matches('s'));
            format!("{}-error", one.unwrap_or(plural))
        }
    };
    let error = |case: Case| {
        let [code, subject, message] = texts(&case.name).try_into().unwrap();
        HostError { case, code, subject, message }
    };
    let errors: Vec<_> = cases("host", &format!("variant {variant}")).into_iter().map(error).collect();
    assert_eq!(table.len(), errors.len() + 1, "[{interface}] has an entry that is no case of `{variant}`");
    let of = table["of"].as_str().unwrap().to_owned();
    HostErrors { interface: interface.to_owned(), variant, of, errors }
}

fn contract() -> Contract {
    let tables: toml::Table = read("sdk/errors.toml").parse().unwrap();
    Contract {
        kinds: CapabilityKind::INTERFACES.iter().map(|(kind, _)| kind.clone()).collect(),
        traits: cases("types", "flags tool-traits"),
        scopes: names(cases("host", "enum scope")),
        codes: names(cases("types", "enum error-code")),
        errors: tables.iter().map(|(name, table)| errors_of(name, table.as_table().unwrap())).collect(),
    }
}

fn snake(name: &str) -> String {
    name.replace('-', "_")
}

fn pascal(name: &str) -> String {
    let word = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split('-').map(word).collect()
}

fn camel(name: &str) -> String {
    let pascal = pascal(name);
    pascal[..1].to_lowercase() + &pascal[1..]
}

/// The items as the elements of a list.
fn list<T>(items: &[T], element: impl Fn(&T) -> String) -> String {
    items.iter().map(element).collect::<Vec<_>>().join(", ")
}

fn is_switch(kind: &CapabilityKind) -> bool {
    GrantKey::for_kind(kind).is_some_and(GrantKey::is_switch)
}

/// The kinds without a target, with the target that declarations of them have. No host reads it.
fn switches(contract: &Contract) -> Vec<(&CapabilityKind, &str)> {
    fn target(kind: &CapabilityKind) -> &str {
        match kind {
            CapabilityKind::Clock => "wall",
            CapabilityKind::Random => "bytes",
            other => other.as_str(),
        }
    }
    contract.kinds.iter().filter(|kind| is_switch(kind)).map(|kind| (kind, target(kind))).collect()
}

/// The lists for the macros in Rust.
fn rust_lists(contract: &Contract) -> String {
    let Contract { kinds, traits, scopes, codes, .. } = contract;
    let switches = switches(contract);
    let quoted = |text: &String| format!("{text:?}");
    format!(
        "//! {ORIGIN}\n\n\
         /// The keys of capabilities, with the contract's name of the kind.\n\
         pub const KINDS: [(&str, &str); {}] = [{}];\n\n\
         /// The kinds without a target, with the value that replaces it.\n\
         pub const SWITCHES: [(&str, &str); {}] = [{}];\n\n\
         /// The targets of `kv`.\n\
         pub const KV_SCOPES: [&str; {}] = [{}];\n\n\
         /// The flags of a tool. The contract's constant is the same word in capitals.\n\
         pub const TRAITS: [&str; {}] = [{}];\n\n\
         /// The error codes.\n\
         pub const CODES: [&str; {}] = [{}];\n\n\
         /// The longest name of a tool, in characters.\n\
         pub const NAME_CHARS: usize = {MAX_TOOL};\n",
        kinds.len(),
        list(kinds, |kind| format!("({:?}, {:?})", snake(kind.as_str()), kind.as_str())),
        switches.len(),
        list(&switches, |(kind, target)| format!("({:?}, {target:?})", kind.as_str())),
        scopes.len(),
        list(scopes, quoted),
        traits.len(),
        list(traits, |one| format!("{:?}", snake(&one.name))),
        codes.len(),
        list(codes, quoted),
    )
}

/// The functions that make errors in Rust.
fn rust_errors(contract: &Contract) -> String {
    let uses = list(&contract.errors, |one| format!("{}::{}", snake(&one.interface), pascal(&one.variant)));
    let mut source = format!(
        "//! {ORIGIN}\n\nuse crate::Error;\nuse crate::bindings::imports::toolbay::plugin::{{{uses}}};\n"
    );
    for HostErrors { interface, variant, of, errors } in &contract.errors {
        let variant = pascal(variant);
        source += &format!(
            "\npub(crate) fn {}({of}: &str, error: {variant}) -> Error {{\n    match error {{\n",
            snake(interface)
        );
        for HostError { case, code, subject, message } in errors {
            let binding = match &case.holds {
                None => "",
                Some(_) if message.contains("{value}") => "(value)",
                Some(_) => "(_)",
            };
            let message = match message.as_str() {
                "{value}" => "value".to_owned(),
                text if text.contains('{') => format!("format!({text:?})"),
                text => format!("{text:?}"),
            };
            let constructor = match code.as_str() {
                "input-invalid" => "input",
                "not-available" => "not_available",
                "execution-failed" => "failed",
                "stale-write" => "stale",
                other => panic!("`{other}` is no code"),
            };
            let subject = match subject.as_str() {
                "" => String::new(),
                text if text.starts_with('{') => format!(".at({of})"),
                text => format!(".at({text:?})"),
            };
            let case = pascal(&case.name);
            source +=
                &format!("        {variant}::{case}{binding} => Error::{constructor}({message}){subject},\n");
        }
        source += "    }\n}\n";
    }
    source
}

/// The texts of errors by interface and case, for SDKs that fill them in at run time.
fn error_texts(
    errors: &[HostErrors],
    none: &str,
    name_of: impl Fn(&Case) -> String,
    open: &str,
    close: &str,
) -> String {
    let mut source = String::new();
    for HostErrors { interface, of, errors, .. } in errors {
        source += &format!("    {:?}: {{\n", camel(interface));
        for HostError { case, code, subject, message } in errors {
            let filled = |text: &str| format!("{:?}", text.replace(&format!("{{{of}}}"), "{name}"));
            let subject = if subject.is_empty() { none.to_owned() } else { filled(subject) };
            let case = name_of(case);
            source += &format!("        {case:?}: {open}{code:?}, {subject}, {}{close},\n", filled(message));
        }
        source += "    },\n";
    }
    source
}

fn javascript(contract: &Contract) -> String {
    let Contract { kinds, traits, scopes, codes, errors } = contract;
    let quoted = |text: &String| format!("{text:?}");
    format!(
        "// {ORIGIN}\n\n\
         /** Option of `needs`, and the contract's name of the kind. */\nexport const KINDS = {{ {} }};\n\n\
         /** The kinds without a target, with the value that replaces it. */\nexport const SWITCHES = {{ {} }};\n\n\
         export const KV_SCOPES = [{}];\n\n\
         /** The options of a tool that are traits. */\nexport const TRAITS = [{}];\n\n\
         export const CODES = Object.freeze([{}]);\n\n\
         /** The name of a tool. */\nexport const NAME = /^[a-zA-Z0-9_-]{{1,{MAX_TOOL}}}$/;\n\n\
         /** The error of a tool for each error of an interface: code, subject, message. */\n\
         export const ERRORS = {{\n{}}};\n",
        list(kinds, |kind| format!("{}: {:?}", camel(kind.as_str()), kind.as_str())),
        list(&switches(contract), |(kind, target)| format!("{}: {target:?}", camel(kind.as_str()))),
        list(scopes, quoted),
        list(traits, |one| format!("{:?}", camel(&one.name))),
        list(codes, quoted),
        error_texts(errors, "null", |case| case.name.clone(), "[", "]"),
    )
}

fn typescript(contract: &Contract) -> String {
    let Contract { kinds, traits, scopes, codes, .. } = contract;
    let either =
        |names: &[String]| names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" | ");
    let mut source = format!(
        "// {ORIGIN}\n\nexport type ErrorCode = {};\n\nexport type Scope = {};\n\ntype Targets = string | readonly string[];\n",
        either(codes),
        either(scopes),
    );
    source += "\n/** The kinds of capability. */\nexport interface Kinds {\n";
    for kind in kinds {
        let comment = GrantKey::for_kind(kind).map(GrantKey::grants).unwrap_or_default();
        let ty = match kind {
            CapabilityKind::Kv => "Scope | readonly Scope[]",
            kind if is_switch(kind) => "true",
            _ => "Targets",
        };
        source += &format!("  /** {} */\n  {}?: {ty};\n", without_links(comment), camel(kind.as_str()));
    }
    source += "}\n\n/** The author's claims about a tool. Without claims the host assumes the worst. */\nexport interface Traits {\n";
    for Case { name, comment, .. } in traits {
        source += &format!("  /** {comment} */\n  {}?: boolean;\n", camel(name));
    }
    source + "}\n"
}

fn python(contract: &Contract) -> String {
    let Contract { kinds, traits, scopes, codes, errors } = contract;
    let quoted = |text: &String| format!("{text:?}");
    format!(
        "# {ORIGIN}\n\n\
         # The keys of `needs`. The contract's name has `-` for `_`.\nKINDS = ({})\n\
         # The kinds without a target, with the value that replaces it.\nSWITCHES = {{{}}}\n\
         KV_SCOPES = ({})\nTRAITS = ({})\nCODES = ({})\n\
         # The name of a tool.\nNAME = \"[a-zA-Z0-9_-]{{1,{MAX_TOOL}}}\"\n\n\
         # The error of a tool for each error of an interface: code, subject, message.\nERRORS = {{\n{}}}\n",
        list(kinds, |kind| format!("{:?}", snake(kind.as_str()))),
        list(&switches(contract), |(kind, target)| format!("{:?}: {target:?}", snake(kind.as_str()))),
        list(scopes, quoted),
        list(traits, |one| format!("{:?}", snake(&one.name))),
        list(codes, quoted),
        error_texts(errors, "None", |case| pascal(&case.name), "(", ")"),
    )
}

fn capitals(name: &str) -> String {
    snake(name).to_uppercase()
}

/// The public lists in C.
fn c_lists(contract: &Contract) -> String {
    let Contract { traits, scopes, codes, .. } = contract;
    let numbered: Vec<(usize, &Case)> = traits.iter().enumerate().collect();
    let switches = switches(contract);
    // The last needs no comparison, because only switches have no target.
    let ((_, last), others) = switches.split_last().unwrap();
    let comparison = |(kind, target): &(&CapabilityKind, &str)| {
        format!("tb_equal(kind, {:?}) ? {target:?} : ", kind.as_str())
    };
    let others: String = others.iter().map(comparison).collect();
    format!(
        "/* {ORIGIN} */\n#ifndef TOOLBAY_CONTRACT_H\n#define TOOLBAY_CONTRACT_H\n\n\
         typedef enum {{ {} }} tb_traits;\n\n\
         typedef enum {{ {} }} tb_scope;\n\n\
         enum {{ {} }};\n#define TB_CODE_NAMES {}\n\n\
         /* The target of a kind that has none. */\n#define TB_SWITCH_TARGET(kind) ({others}{last:?})\n\n#endif\n",
        list(&numbered, |(bit, one)| format!("TB_{} = {}", capitals(&one.name), 1 << bit)),
        list(scopes, |scope| format!("TB_OF_{}", capitals(scope))),
        list(codes, |code| format!("TB_CODE_{}", capitals(code))),
        list(codes, |code| format!("{code:?}")),
    )
}

/// The errors of the host in C: their layout, and the functions that make errors of tools.
fn c_errors(contract: &Contract) -> String {
    let mut source = format!("/* {ORIGIN} */\n");
    for HostErrors { variant, of, errors, .. } in &contract.errors {
        let holds_number = errors.iter().any(|error| error.case.holds.as_deref() == Some("u64"));
        let held = if holds_number { "union { tb_str text; uint64_t bytes; };" } else { "tb_str text;" };
        let ty = snake(variant);
        let function = ty.replace("_error", "_refused");
        source += &format!("\ntypedef struct {{ uint8_t error; {held} }} {ty};\n\n");
        source += &format!(
            "static bool {function}(const {ty} *error, tb_str {of}) {{\n  switch (error->error) {{\n"
        );
        let last = errors.len() - 1;
        for (number, HostError { case, code, subject, message }) in errors.iter().enumerate() {
            let label = if number == last { "default".to_owned() } else { format!("case {number}") };
            let subject = match subject.as_str() {
                "" => "(tb_str){0}".to_owned(),
                text if text.starts_with('{') => of.clone(),
                text => format!("TB_STR({text:?})"),
            };
            let message = c_message(message, of, case.holds.as_deref());
            let code = capitals(code);
            source += &format!(
                "    {label}: /* {} */\n      return refused(TB_CODE_{code}, {subject}, {message});\n",
                case.name
            );
        }
        source += "  }\n}\n";
    }
    source
}

/// The expression of a message in C.
fn c_message(message: &str, of: &str, holds: Option<&str>) -> String {
    let (conversion, value) = match holds {
        Some("u64") => ("%u", "(size_t)error->bytes"),
        _ => ("%v", "error->text"),
    };
    if message == "{value}" {
        return value.to_owned();
    }
    let (mut format, mut args, mut rest) = (String::new(), String::new(), message);
    while let Some((before, (placeholder, after))) =
        rest.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    {
        let is_value = placeholder == "value";
        assert!(is_value || placeholder == of, "`{placeholder}` in: {message}");
        format += &format!("{before}{}", if is_value { conversion } else { "%v" });
        args += &format!(", {}", if is_value { value } else { of });
        rest = after;
    }
    format += rest;
    if args.is_empty() { format!("TB_STR({format:?})") } else { format!("tb_format({format:?}{args})") }
}

#[test]
fn the_sdks_have_the_lists_and_errors_of_the_contract() {
    let contract = contract();
    let files = [
        ("sdk/rust-syntax/src/contract.rs", rust_lists(&contract)),
        ("sdk/rust/src/host_errors.rs", rust_errors(&contract)),
        ("sdk/js/src/contract.js", javascript(&contract)),
        ("sdk/js/src/contract.d.ts", typescript(&contract)),
        ("sdk/python/toolbay_sdk/_contract.py", python(&contract)),
        ("sdk/c/include/toolbay_contract.h", c_lists(&contract)),
        ("sdk/c/src/errors.h", c_errors(&contract)),
    ];
    for (path, source) in files {
        if std::env::var_os("TOOLBAY_WRITE_DOCS").is_some() {
            fs::write(root().join(path), source).unwrap();
        } else {
            assert_eq!(read(path), source, "{path}: `TOOLBAY_WRITE_DOCS=1` writes it");
        }
    }
}

/// An error names limits only as the operator writes them.
#[test]
fn the_limits_that_errors_name_exist() {
    let keys: Vec<&str> =
        CallLimits::ENTRIES.iter().chain(HostLimits::ENTRIES).map(|limit| limit.key).collect();
    for error in contract().errors.iter().flat_map(|of| &of.errors) {
        let quoted = error.message.split('`').skip(1).step_by(2);
        for word in quoted.filter(|word| !word.contains('{')) {
            assert!(keys.contains(&word), "`{word}` is no limit: {}", error.message);
        }
    }
}
