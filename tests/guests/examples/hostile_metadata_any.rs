//! `list-tools` answers what stands in a buffer of the component, which whoever has the file can write over.

use guest::{Capability, ToolDef, ToolTraits, definition};

/// Begins with a mark by which it is found.
#[used]
static BUFFER: [u8; 4096] = {
    let (mut buffer, mark, mut n) = ([b' '; 4096], b"<buffer of hostile_metadata_any>", 0);
    while n < mark.len() {
        buffer[n] = mark[n];
        n += 1;
    }
    buffer
};

/// Lines of the buffer behind its first: one tool for each, its fields between tabs.
fn tools() -> Vec<ToolDef> {
    // Not what the compiler saw there.
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
