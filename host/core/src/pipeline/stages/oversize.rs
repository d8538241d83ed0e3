//! Results over `result_bytes`: what exceeds the limit is delivered in another form, and the rest stays.
//!
//! | part | becomes |
//! |---|---|
//! | structured data | text, which is cut and saved like any other |
//! | data of a block | a note in its place |
//! | metadata | nothing |

use serde_json::value::RawValue;
use toolbay_policy::excerpt::one_line;
use toolbay_policy::limits::LimitHit;
use toolbay_policy::quantity;

use super::resolve::ResolvedTool;
use crate::call::invoke::Failure;
use crate::pipeline::context::result_memory::{data_bytes, result_bytes_setting};
use crate::tool::content::{ContentBlock, ErrorDetails, ToolOutput};

/// Longest media type in a note, in characters.
const MAX_KIND: usize = 100;

/// The parts of a result that the limit bounds.
struct BoundedParts<'a> {
    structured: &'a mut Option<Box<RawValue>>,
    content: &'a mut Vec<ContentBlock>,
    meta: Option<&'a mut Option<Box<RawValue>>>,
}

/// The part that takes the most bytes.
enum LargestPart {
    Structured,
    Block(usize),
    Meta,
}

/// Makes a result fit the limit of its tool. Returns whether the structured data became text.
pub(super) fn fit(result: &mut Result<ToolOutput, Failure>, tool: ResolvedTool<'_>) -> bool {
    let Some(mut parts) = BoundedParts::of(result) else { return false };
    let limit = tool.entry().call.result_bytes;
    let mut bytes = parts.bytes();
    if bytes <= limit {
        return false;
    }
    let setting = result_bytes_setting(tool.entry());
    let hit = LimitHit { name: "result_bytes", value: quantity::show_bytes(limit), setting };
    hit.hint().into_iter().for_each(|hint| tool.ctx.add_hint(hint));
    let mut has_moved = false;
    while bytes > limit
        && let Some(largest) = parts.largest()
    {
        has_moved |= matches!(largest, LargestPart::Structured);
        parts.replace(&largest, &hit);
        bytes = parts.bytes();
    }
    has_moved
}

impl<'a> BoundedParts<'a> {
    fn of(result: &'a mut Result<ToolOutput, Failure>) -> Option<Self> {
        match result {
            Ok(ToolOutput { structured, content, meta, .. }) => {
                Some(Self { structured, content, meta: Some(meta) })
            }
            Err(Failure::Refused(error)) => {
                let ErrorDetails { structured, content } = &mut **error.details.as_mut()?;
                Some(Self { structured, content, meta: None })
            }
            Err(Failure::Fault(_) | Failure::Host(_)) => None,
        }
    }

    fn meta_bytes(&self) -> u64 {
        self.meta.as_deref().and_then(Option::as_ref).map_or(0, |raw| raw.get().len() as u64)
    }

    fn structured_bytes(&self) -> u64 {
        self.structured.as_ref().map_or(0, |raw| raw.get().len() as u64)
    }

    fn bytes(&self) -> u64 {
        let blocks = self.content.iter().map(data_bytes).fold(0, u64::saturating_add);
        blocks.saturating_add(self.structured_bytes()).saturating_add(self.meta_bytes())
    }

    fn largest(&self) -> Option<LargestPart> {
        let blocks = self.content.iter().enumerate().filter(|(_, block)| block.data().is_some());
        let blocks = blocks.map(|(n, block)| (data_bytes(block), LargestPart::Block(n)));
        let others =
            [(self.structured_bytes(), LargestPart::Structured), (self.meta_bytes(), LargestPart::Meta)];
        let all = blocks.chain(others).filter(|(bytes, _)| *bytes > 0);
        all.max_by_key(|(bytes, _)| *bytes).map(|(_, part)| part)
    }

    fn replace(&mut self, part: &LargestPart, hit: &LimitHit) {
        match part {
            LargestPart::Structured => {
                let Some(raw) = self.structured.take() else { return };
                let json: String = Box::<str>::from(raw).into();
                let note = format!("[its structured data has {} bytes: {hit}]", json.len());
                self.content.push(ContentBlock::from_text(note));
                // Last, since it is cut where the budget of the result ends.
                self.content.push(ContentBlock::from_text(json));
            }
            LargestPart::Block(number) => {
                if let Some(block) = self.content.get_mut(*number) {
                    let kind = block.machine_fields().first().map(|kind| one_line(kind, MAX_KIND));
                    let kind = kind.unwrap_or_else(|| "data".to_owned());
                    let note = format!("[{kind} of {} bytes is left out: {hit}]", data_bytes(block));
                    *block = ContentBlock::from_text(note);
                }
            }
            LargestPart::Meta => self.meta.iter_mut().for_each(|meta| **meta = None),
        }
    }
}
