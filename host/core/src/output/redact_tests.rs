//! Tests with every form of a value in every part of a result.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::tool::content::{Blob, EmbeddedResource, ErrorCode, ResourceLink};

const VALUE: &str = "s3cr3t/+Value \"q\\uote\" <&'ä";

fn redactor() -> Redactor {
    Redactor::new([("KEY", VALUE), ("pin", "12345678901")]).unwrap()
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

/// Percent-encodes all bytes except those that `keep` selects.
fn percent(text: &str, keep: impl Fn(u8) -> bool, upper: bool) -> String {
    text.bytes()
        .map(|b| match (keep(b), upper) {
            (true, _) => char::from(b).to_string(),
            (false, true) => format!("%{b:02X}"),
            (false, false) => format!("%{b:02x}"),
        })
        .collect()
}

/// The content of a JSON string, without the quotes.
fn escaped(text: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap();
    quoted[1..quoted.len() - 1].to_owned()
}

fn spellings(value: &str) -> Vec<String> {
    let alphanumeric = |b: u8| b.is_ascii_alphanumeric();
    let mut all = vec![
        value.to_owned(),
        value.bytes().map(|b| format!("{b:02x}")).collect(),
        value.bytes().map(|b| format!("{b:02X}")).collect(),
        percent(value, alphanumeric, true),
        percent(value, alphanumeric, false),
        percent(value, |b| alphanumeric(b) || b"-_.~!*'()/".contains(&b), true),
        percent(value, |_| false, true),
        percent(value, |_| false, false),
        percent(value, |b| alphanumeric(b) || b == b' ', true).replace(' ', "+"),
        escaped(value),
        escaped(value).replace('/', "\\/"),
        value.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect(),
        value.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect(),
        value.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;").replace('\'', "&#39;"),
        value.chars().map(|c| format!("&#x{:X};", u32::from(c))).collect(),
        value.chars().map(|c| format!("&#{};", u32::from(c))).collect(),
    ];
    // Encoded twice: JSON in JSON, a URL in a URL.
    all.push(percent(&percent(value, alphanumeric, true), alphanumeric, true));
    all.push(escaped(&escaped(value)));
    for engine in [
        base64::engine::general_purpose::STANDARD,
        base64::engine::general_purpose::STANDARD_NO_PAD,
        base64::engine::general_purpose::URL_SAFE,
        base64::engine::general_purpose::URL_SAFE_NO_PAD,
    ] {
        for (before, after) in
            [("", ""), ("u", ""), ("us", ""), ("use", ""), ("user:", ":x"), ("user", "yz"), ("", "z")]
        {
            all.push(engine.encode(format!("{before}{value}{after}")));
        }
    }
    all
}

/// A text with something between all characters.
fn interspersed(text: &str, between: &str) -> String {
    text.chars().map(String::from).collect::<Vec<_>>().join(between)
}

#[test]
fn a_value_is_found_although_a_later_cleaner_puts_it_together() {
    let redactor = redactor();
    let hidden = [
        "\u{200b}",
        "\u{ad}",
        "\u{feff}",
        "\u{e0041}",
        "\u{200d}\u{200d}",
        "\u{8}",
        "\x1b",
        "\x1b[31m",
        "\x1b[1;38;5;9m\x1b[0m",
        "\x1b]8;;http://example.com\x07",
        "\x1b(B",
        "\u{9b}0m",
    ];
    for (between, spelling) in hidden.iter().flat_map(|one| {
        [(one, VALUE.to_owned()), (one, base64::engine::general_purpose::STANDARD.encode(VALUE))]
    }) {
        let text = format!("before {} behind", interspersed(&spelling, between));
        let clean = redactor.redact_text(&text);
        assert_eq!(clean, "before [secret KEY] behind", "{between:?}");
        let json = redactor.redact_json(raw(&json!({ "a": text }).to_string()));
        assert!(json.get().contains("before [secret KEY] behind"), "{between:?}: {json}");
        let visible = toolbay_policy::hidden_chars::remove_hidden(&clean);
        assert!(!visible.contains(&spelling), "{between:?}");
    }
    let plain = "a\u{200b}b \x1b[31mred\x1b[0m \x1b]unclosed";
    assert_eq!(redactor.redact_text(plain), plain, "all other texts stay");
    let open = "\x1b]".repeat(100_000);
    assert_eq!(redactor.redact_text(&open), open);
}

#[test]
fn a_dump_of_words_and_references_without_an_end_are_found() {
    let redactor = redactor();
    let bytes: Vec<u8> = [b"x".as_slice(), VALUE.as_bytes(), b"\n"].concat();
    for size in [2, 4, 8] {
        let words = bytes.chunks(size).map(|word| {
            let padded = word.iter().chain(std::iter::repeat(&0_u8)).take(size);
            let padded: Vec<u8> = padded.copied().collect();
            padded.iter().rev().map(|byte| format!("{byte:02x}")).collect::<String>()
        });
        let words: Vec<String> = words.collect();
        let lines = words.chunks(16 / size).enumerate();
        let dump: String = lines.map(|(n, line)| format!("{:07o} {}\n", n * 16, line.join(" "))).collect();
        let clean = redactor.redact_text(&dump);
        assert!(clean.contains("[secret KEY]"), "{dump} -> {clean}");
    }
    let decimal: String = VALUE.chars().map(|c| format!("&#{:07}", u32::from(c))).collect();
    let named = VALUE.replace('/', "&sol;").replace('+', "&plus;").replace('\\', "&bsol;");
    for text in [decimal, named] {
        assert!(redactor.redact_text(&text).contains("[secret KEY]"), "{text}");
    }
}

#[test]
fn references_to_hidden_characters_hide_no_value() {
    let redactor = Redactor::new([("KEY", "abc/def+ghi-jkl")]).unwrap();
    for between in ["&#8203;", "&#x200B;", "&shy;", "&zwj;", "&ZeroWidthSpace;", "\\u200b", "\\u00AD"] {
        let text = format!("a {} b", interspersed("abc/def+ghi-jkl", between));
        assert_eq!(redactor.redact_text(&text), "a [secret KEY] b", "{between}");
    }
    let named = "a abc&sol;def&plus;ghi&hyphen;jkl b";
    assert_eq!(redactor.redact_text(named), "a [secret KEY] b");
    for text in ["a&shy;b", "&#8203;", "&hyphen;", "x&shy;y \\u200b"] {
        assert_eq!(redactor.redact_text(text), text, "all other texts stay");
    }
}

/// The lines of a dump of 16 bytes each.
fn dump(bytes: &[u8], offset: impl Fn(usize) -> String, cell: impl Fn(u8) -> String) -> String {
    let line = |(n, line): (usize, &[u8])| {
        format!("{}{}\n", offset(n * 16), line.iter().map(|byte| cell(*byte)).collect::<String>())
    };
    bytes.chunks(16).enumerate().map(line).collect()
}

#[test]
fn dumps_of_numbers_and_characters_are_found() {
    let redactor = redactor();
    let bytes: Vec<u8> = [b"user:".as_slice(), VALUE.as_bytes(), b"\n"].concat();
    let octal = |at: usize| format!("{at:07o}");
    let none = |_: usize| String::new();
    let in_c = |byte: u8| match byte {
        b'\n' => "  \\n".to_owned(),
        b' '..=b'~' => format!("{:>4}", char::from(byte)),
        _ => format!(" {byte:03o}"),
    };
    let words =
        bytes.chunks(4).map(|word| word.iter().rev().map(|byte| format!("{byte:02x}")).collect::<String>());
    let dumps = [
        dump(&bytes, octal, |byte| format!(" {byte:03o}")),
        dump(&bytes, none, |byte| format!(" {byte:03o}")),
        dump(&bytes, octal, |byte| format!(" {byte:3}")),
        dump(&bytes, none, |byte| format!(" {byte:3}")),
        dump(&bytes, |at| format!("{at:06x}"), |byte| format!(" {byte:3}")),
        dump(&bytes, octal, in_c),
        format!("{bytes:?}"),
        format!("{}\n", words.collect::<Vec<_>>().join(" ")),
    ];
    for dump in dumps {
        for text in [dump.clone(), format!("it says:\n{dump}1 2 3 and more 255\n")] {
            let clean = redactor.redact_text(&text);
            assert!(clean.contains("[secret KEY]") && clean.len() < 120, "{text} -> {clean}");
            let json = redactor.redact_json(raw(&json!({ "out": text }).to_string()));
            assert!(json.get().contains("[secret KEY]"), "{json}");
        }
    }
    let numbers = redactor.redact_json(raw(&json!({ "bytes": bytes }).to_string()));
    assert!(numbers.get().contains("[secret"), "{numbers}");
    for text in
        ["115 51 99 114 51 116 47", "0000000 163 063 143", "0000000   s   3   c   r", "1, 2, 3 and 256"]
    {
        assert!(matches!(redactor.redact_text(text), Cow::Borrowed(_)), "{text}");
    }
}

#[test]
fn every_form_is_found_in_any_context() {
    let redactor = redactor();
    for spelling in spellings(VALUE) {
        for (before, after) in [("", ""), ("a", "b"), ("%", "%2"), ("\\", "\\u00"), ("ä", "ä"), ("%zz\\", "")]
        {
            let text = format!("{before}{spelling}{after}");
            let clean = redactor.redact_text(&text);
            assert!(clean.contains("[secret KEY]"), "{text} -> {clean}");
            let bytes = redactor.redact_bytes(text.clone().into_bytes(), |_| true);
            assert_eq!(String::from_utf8(bytes).unwrap(), clean, "{text}");
            let structured = json!({ "a": [text.clone()], text.clone(): 1 }).to_string();
            let clean = redactor.redact_json(raw(&structured));
            let parsed: Value = serde_json::from_str(clean.get()).unwrap();
            assert!(parsed["a"][0].as_str().unwrap().contains("[secret KEY]"), "{structured} -> {clean}");
            assert!(!clean.get().contains(&spelling), "{structured} -> {clean}");
        }
    }
}

/// Forms with separators between digits, as people and programs write them.
fn with_separators(value: &str) -> Vec<String> {
    let hex = |byte: u8| format!("{byte:02x}");
    let mut all: Vec<String> = [" ", ":", "-", ", ", "\n", "\r\n    ", " : ", "\t", "."]
        .iter()
        .map(|between| value.bytes().map(hex).collect::<Vec<_>>().join(between))
        .collect();
    all.push(value.bytes().map(|b| format!("0x{b:02x}, ")).collect());
    all.push(value.bytes().map(|b| format!("\\x{b:02X}")).collect());
    all.push(
        value
            .bytes()
            .zip(0..)
            .map(|(b, n)| if n % 2 == 0 { format!("{b:02x}") } else { format!("{b:02X}") })
            .collect(),
    );
    let words: Vec<String> =
        value.as_bytes().chunks(2).map(|two| two.iter().map(|b| hex(*b)).collect()).collect();
    all.push(words.join(" "));
    for (offset, group, bar) in [("08", 2, ""), ("8", 1, "|")] {
        let line = |(n, line): (usize, &[u8])| {
            let groups: Vec<String> =
                line.chunks(group).map(|bytes| bytes.iter().map(|b| hex(*b)).collect()).collect();
            let offset = if offset == "08" { format!("{:08x}:", n * 16) } else { format!("{:08x} ", n * 16) };
            let seen: String =
                line.iter().map(|b| if b.is_ascii_graphic() { char::from(*b) } else { '.' }).collect();
            format!("{offset} {}  {bar}{seen}{bar}\n", groups.join(" "))
        };
        all.push(value.as_bytes().chunks(16).enumerate().map(line).collect());
    }
    for engine in
        [base64::engine::general_purpose::STANDARD, base64::engine::general_purpose::URL_SAFE_NO_PAD]
    {
        let digits = engine.encode(format!("user:{value}"));
        for (width, between) in
            [(4, "\n"), (8, "\r\n"), (16, "\n    "), (5, "\" +\n \""), (7, "\n> "), (6, "=\r\n"), (1, " ")]
        {
            let lines: Vec<String> = digits
                .as_bytes()
                .chunks(width)
                .map(|line| String::from_utf8(line.to_vec()).unwrap())
                .collect();
            all.push(lines.join(between));
        }
    }
    all
}

#[test]
fn digits_are_found_with_any_separators() {
    let redactor = redactor();
    for spelling in with_separators(VALUE) {
        for (before, after) in [("", ""), ("all: ", " that"), ("ä ", "\n")] {
            let text = format!("{before}{spelling}{after}");
            let clean = redactor.redact_text(&text);
            assert!(clean.contains("[secret KEY]"), "{text} -> {clean}");
            assert!(
                clean.starts_with(before.trim_end()) && clean.len() < 120 + before.len(),
                "{text} -> {clean}"
            );
            let structured = json!({ "a": [text.clone()] }).to_string();
            let clean = redactor.redact_json(raw(&structured));
            assert!(clean.get().contains("[secret KEY]"), "{structured} -> {clean}");
            let escaped = escaped(&text);
            assert!(redactor.redact_text(&escaped).contains("[secret KEY]"), "{escaped}");
        }
    }
    let bytes: Vec<String> = VALUE.bytes().map(|b| format!("{b:02x}")).collect();
    let clean = redactor.redact_json(raw(&json!({ "bytes": bytes }).to_string()));
    assert!(clean.get().contains("[secret"), "{clean}");
    for text in ["12 34 56 78 90 1", "deadbeef: cafe babe", "00000000: 7333 6372  s3cr", "s3cr3t / +Value"] {
        assert!(matches!(redactor.redact_text(text), Cow::Borrowed(_)), "{text}");
    }
}

#[test]
fn the_text_around_a_value_is_unchanged() {
    let redactor = redactor();
    assert_eq!(
        redactor.redact_text(&format!("a {VALUE} b {VALUE}{VALUE} c%20+\\n")),
        "a [secret KEY] b [secret KEY][secret KEY] c%20+\\n"
    );
    for text in [
        "",
        "plain",
        "a%20b+c\\nd",
        "%",
        "\\",
        "%4",
        "\\u12",
        "s3cr3t/+Valu",
        "[secret KEY]",
        "\\ud800\\u0041",
    ] {
        assert!(matches!(redactor.redact_text(text), Cow::Borrowed(same) if same == text), "{text}");
        assert_eq!(redactor.redact_bytes(text.as_bytes().to_vec(), |_| true), text.as_bytes());
    }
    let bytes = [&[0xff, 0x00][..], VALUE.as_bytes(), &[0xfe]].concat();
    assert_eq!(
        redactor.redact_bytes(bytes.clone(), |_| true),
        [&[0xff, 0x00][..], b"[secret KEY]", &[0xfe]].concat()
    );
    assert_eq!(
        redactor.redact_bytes(bytes.clone(), |name| name == "other"),
        bytes,
        "only the selected secrets are redacted"
    );
}

#[test]
fn redacted_json_is_valid() {
    let redactor =
        Redactor::new([("KEY", "abcdefgh"), ("pin", "12345678901"), ("whole", r#"{"k":"v","n":1}"#)])
            .unwrap();
    for (text, clean) in [
        (r#"{"n":12345678901}"#, r#"{"n":"[secret pin]"}"#),
        (r#"{"n":-3.12345678901e5}"#, r#"{"n":"-3.[secret pin]e5"}"#),
        (r#"["\u0061bcdefgh", "x\"abcdefgh\\"]"#, r#"["[secret KEY]", "x\"[secret KEY]\\"]"#),
        (r#"{"abcdefgh": true, "b": null}"#, r#"{"[secret KEY]": true, "b": null}"#),
        (r#"{"abcdefgh": 1, "\u0061bcdefgh1": 2}"#, r#"{"[secret KEY]": 1, "[secret KEY]1": 2}"#),
        (r#"{"abcdefgh": 1, "6162636465666768": 2}"#, r#"{"redacted":"[secret]"}"#),
        (r#"{"a":{"k":"v","n":1}}"#, r#"{"redacted":"[secret]"}"#),
        (r#""{\"k\":\"v\",\"n\":1}""#, r#""[secret whole]""#),
        (r#"{"a":"50% \n+"}"#, r#"{"a":"50% \n+"}"#),
    ] {
        assert_eq!(redactor.redact_json(raw(text)).get(), clean, "{text}");
    }
}

#[test]
fn every_part_of_a_result_is_redacted() {
    let redactor = redactor();
    let text = || format!("x {VALUE} y");
    let link = ResourceLink {
        uri: text(),
        name: text(),
        title: Some(text()),
        description: Some(text()),
        mime_type: Some(text()),
        size: None,
    };
    let blob = || Blob { data: text().into_bytes(), mime_type: text() };
    let embedded =
        |body| BlockBody::Embedded(EmbeddedResource { uri: text(), mime_type: Some(text()), body });
    let bodies = [
        BlockBody::Text(text()),
        BlockBody::Image(blob()),
        BlockBody::Audio(blob()),
        BlockBody::Link(link),
        embedded(ResourceBody::Text(text())),
        embedded(ResourceBody::Blob(text().into_bytes())),
    ];
    let annotations =
        crate::tool::content::BlockAnnotations { last_modified: Some(text()), ..Default::default() };
    let output = ToolOutput {
        value: text(),
        structured: Some(raw(&json!({"a": text()}).to_string())),
        content: bodies.map(|body| ContentBlock { body, annotations: Some(annotations.clone()) }).to_vec(),
        cost_usd: Some(1.0),
        meta: Some(raw(&json!([text()]).to_string())),
    };
    let clean = format!("{:?}", redactor.redact_output(output));
    assert!(
        !clean.contains("s3cr3t") && !clean.contains(&format!("{:?}", &VALUE.as_bytes()[..4])),
        "{clean}"
    );
    assert_eq!(clean.matches("[secret KEY]").count(), 22, "each text of it: {clean}");
    let as_bytes = format!("{:?}", b"[secret KEY]").trim_matches(['[', ']']).to_owned();
    assert_eq!(clean.matches(&as_bytes).count(), 3, "each blob of it: {clean}");
    let error = ToolError::new(ErrorCode::ExecutionFailed, text()).with_subject(text());
    let clean = format!("{:?}", redactor.redact_error(error));
    assert!(clean.matches("[secret KEY]").count() == 2 && !clean.contains("s3cr3t"), "{clean}");
}

#[test]
fn overlapping_values_are_found_for_each_selection() {
    let redactor = Redactor::new([
        ("basic", "user:hunter2hunter2"),
        ("pw", "hunter2hunter2"),
        ("same", "hunter2hunter2"),
        ("long", "hunter2hunter2-and-more"),
        ("next", "more-of-the-next"),
    ])
    .unwrap();
    for (text, which, clean) in [
        ("say user:hunter2hunter2!", "pw", "say user:[secret pw]!"),
        ("say hunter2hunter2!", "pw", "say [secret pw]!"),
        ("say hunter2hunter2!", "same", "say [secret same]!"),
        ("say user:hunter2hunter2!", "basic", "say [secret basic]!"),
        ("say hunter2hunter2-and-more!", "pw", "say [secret pw]-and-more!"),
        ("say hunter2hunter2-and-more!", "long", "say [secret long]!"),
        ("say hunter2hunter2-and-more-of-the-next!", "next", "say hunter2hunter2-and-[secret next]!"),
        ("say user:hunter2hunter2-and-more-of-the-next!", "", "say [secret basic]!"),
        ("say hunter2hunter2-and-more!", "", "say [secret long]!"),
        ("say user%3Ahunter2%68unter2!", "pw", "say user%3A[secret pw]!"),
    ] {
        let found = redactor.redact_bytes(text.as_bytes().to_vec(), |name| which.is_empty() || which == name);
        assert_eq!(String::from_utf8(found).unwrap(), clean, "{which} in {text}");
    }
    for (name, value) in
        [("basic", "user:hunter2hunter2"), ("pw", "hunter2hunter2"), ("same", "hunter2hunter2")]
    {
        for spelling in spellings(value) {
            let clean = redactor.redact_bytes(spelling.clone().into_bytes(), |one| one == name);
            let clean = String::from_utf8(clean).unwrap();
            assert!(clean.contains(&format!("[secret {name}]")), "{name} as {spelling}: {clean}");
        }
    }
}

#[test]
fn many_overlapping_matches_become_one() {
    let redactor = Redactor::new([("KEY", "aaaaaaaa")]).unwrap();
    assert_eq!(redactor.redact_text(&"a".repeat(100_000)), "[secret KEY]");
}

#[test]
fn a_redacted_prefix_has_no_part_of_a_value() {
    let redactor = Redactor::new([("K", "0123456789-abcdefghij")]).unwrap();
    let (value, percent) = ("0123456789-abcdefghij", percent("0123456789-abcdefghij", |_| false, true));
    let many = value.repeat(1000);
    for (text, most, start, more) in [
        ("short", 10, "short".to_owned(), false),
        ("ätext that is longer", 5, "ätext".to_owned(), true),
        (&format!("xx{value}"), 5, "xx[secret K]".to_owned(), true),
        (&format!("xx{value}"), 22, "xx[secret K]".to_owned(), true),
        (&format!("xx{percent}yy"), 3, "xx[secret K]".to_owned(), true),
        (&format!("xx{value}"), 2, "xx".to_owned(), true),
        // Redaction does not extend the scanned prefix.
        (&many, 50, "[secret K]".repeat(3), true),
        (&format!("{value}ää"), 22, "[secret K]ä".to_owned(), true),
    ] {
        assert_eq!(redactor.redact_prefix(text, most), (start.into(), more), "{most} of {text:.80}");
    }
    assert_eq!(Redactor::default().redact_prefix("äbc", 2), ("äb".into(), true));
}

#[test]
fn short_values_are_ignored_and_too_many_are_refused() {
    let short = Redactor::new([("a", ""), ("b", "1234567")]).unwrap();
    assert!(short.is_empty());
    let long = "x".repeat(MAX_BYTES + 1);
    assert!(Redactor::new([("a", long.as_str())]).unwrap_err().contains("the limit is"));
    assert!(!format!("{:?}", redactor()).contains("s3cr3t"));
}

#[test]
fn a_large_text_is_redacted_in_linear_time() {
    let values: Vec<(String, String)> =
        (0..64).map(|n| (format!("K{n}"), format!("value-{n:032}"))).collect();
    let redactor = Redactor::new(values.iter().map(|(name, value)| (name.as_str(), value.as_str()))).unwrap();
    let start = std::time::Instant::now();
    // Many prefixes of values, escapes and partial encodings. Quadratic time would be minutes.
    let text = "value-00000000000000 %76alue-%30 \\u0076alue \\\\ %% ".repeat(10_000);
    assert!(matches!(redactor.redact_text(&text), Cow::Borrowed(_)));
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

proptest! {
    // The prefix must not start an escape that would consume the start of the value.
    #[test]
    fn no_form_of_a_value_is_left(value in "[ -~]{8,40}", before in "[^\\\\%&]{0,9}", after in ".{0,9}") {
        let redactor = Redactor::new([("KEY", value.as_str())]).unwrap();
        for spelling in spellings(&value) {
            let text = format!("{before}{spelling}{after}");
            let clean = redactor.redact_text(&text);
            prop_assert!(clean.contains("[secret KEY]"), "{} -> {}", text, clean);
            let json = json!({ "k": text }).to_string();
            let json = redactor.redact_json(raw(&json));
            prop_assert!(json::check(json.get()).is_ok());
        }
    }

    #[test]
    fn redaction_keeps_any_json_valid(
value in "[a-c\"\\\\:,{}0-9]{8,12}", texts in proptest::collection::vec("[a-c\"\\\\:,{}0-9]{0,14}", 0..4)) {
        let redactor = Redactor::new([("KEY", value.as_str())]).unwrap();
        let json = redactor.redact_json(raw(&json!({ "texts": texts, value.clone(): value }).to_string()));
        prop_assert!(json::check(json.get()).is_ok());
        prop_assert!(!json.get().contains(&value) || value.contains('\\'), "{}", json);
    }
}
