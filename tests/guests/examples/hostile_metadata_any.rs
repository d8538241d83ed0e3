//! `list-tools` returns the content of a buffer that anyone with the file can overwrite.

use guest::{Capability, ToolDef, ToolTraits, definition};

/// Begins with a marker by which tests find it.
#[used]
static BUFFER: [u8; 4096] = {
    let (mut buffer, mark, mut n) = ([b' '; 4096], b"<buffer of hostile_metadata_any>", 0);
    while n < mark.len() {
        buffer[n] = mark[n];
        n += 1;
    }
    buffer
};

/// The lines after the first: one tool each, with fields separated by tabs.
fn tools() -> Vec<ToolDef> {
    // The volatile read keeps the compiler from using the initial value.
    let buffer: Vec<u8> =
        BUFFER.iter().map(|byte| unsafe { std::ptr::from_ref(byte).read_volatile() }).collect();
    let text = String::from_utf8_lossy(&buffer).into_owned();
    text.trim_end().lines().skip(1).map(tool).collect()
}

fn tool(line: &str) -> ToolDef {
    let mut fields = line.split('\t').map(|field| field.replace("\\n", "\n"));
    let mut next = || fields.next().filter(|field| field != "-");
    let base = definition(next().unwrap_or_default());
    ToolDef {
        description: next().unwrap_or_default(),
        input_schema: next().unwrap_or(base.input_schema),
        output_schema: next(),
        title: next(),
        toolset: next(),
        tags: next().map(|tags| tags.split(',').map(str::to_owned).collect()).unwrap_or_default(),
        capabilities: next()
            .into_iter()
            .map(|wish| {
                let (kind, target) = wish.split_once(' ').unwrap_or((&wish, ""));
                Capability { kind: kind.into(), target: target.into(), optional: false, reason: None }
            })
            .collect(),
        meta: next(),
        timeout_ms: next().and_then(|n| n.parse().ok()),
        traits: ToolTraits::all(),
        ..base
    }
}

guest::metadata!(tools);
