//! Shaping of texts: cutting, marking, saving, and removal of encoded data.

use std::borrow::Cow;
use std::sync::Arc;

use toolbay_policy::text;

use crate::call::CallContext;
use crate::call::invoke::Failure;
use crate::output::budget;
use crate::output::encoded_data;
use crate::output::rules::OutputRules;
use crate::output::untrusted::{self, UntrustedMark};
use crate::pipeline::batch::BatchContext;
use crate::registry::read_output;
use crate::registry::view::View;
use crate::session::output_store::{OutputStore, SavedOutput, SavedText};
use crate::tool::ToolSource;
use crate::tool::content::{BlockBody, ContentBlock, EmbeddedResource, ResourceLink, ToolOutput};

/// Longest subject of an error, in characters.
const MAX_SUBJECT: usize = 1000;

/// Shapes the texts of one output: removes encoded data if the rules say so, marks untrusted texts, cuts long texts,
/// and saves the originals.
pub(super) struct OutputShaper<'a> {
    budget: usize,
    rules: OutputRules,
    pub(super) mark: Option<UntrustedMark>,
    store: Option<SessionStore<'a>>,
    source: Option<&'a ToolSource>,
    tool: &'a str,
    /// The text before it was reduced.
    original: Option<String>,
    /// The texts that were saved.
    pub(super) saved: Vec<SavedOutput>,
    /// Whether the reduction was undone because it saved fewer characters than its note takes.
    pub(super) reduction_undone: bool,
}

/// The output store for one session.
struct SessionStore<'a> {
    store: &'a dyn OutputStore,
    session: &'a str,
    view: &'a View,
}

impl SessionStore<'_> {
    /// Whether the caller can call `read_output`. Otherwise the texts do not mention it.
    fn is_readable(&self) -> bool {
        self.view.get_callable(read_output::NAME).is_some()
    }
}

impl<'a> OutputShaper<'a> {
    /// A shaper for the output of one call. `original` is the text before it was reduced.
    pub(super) fn new(
        batch: &'a BatchContext,
        ctx: &'a CallContext,
        source: Option<&'a ToolSource>,
        rules: OutputRules,
        original: Option<String>,
    ) -> Self {
        let tool = &*ctx.tool;
        // Nothing is saved for sessions without a key, for `read_output` itself, and for nested calls.
        let store = match (batch.turn.session.key(), &batch.pipeline.output_store) {
            (Some(session), Some(store)) if tool != read_output::NAME && batch.parent.is_none() => {
                Some(SessionStore { store: &**store, session, view: &batch.view })
            }
            _ => None,
        };
        let mark = source.filter(|_| rules.untrusted).map(|source| UntrustedMark::new(&source.label(), tool));
        let budget = ctx.budget_chars;
        Self {
            budget,
            rules,
            mark,
            store,
            source,
            tool,
            original,
            saved: Vec::new(),
            reduction_undone: false,
        }
    }

    /// Shapes a result. Returns the characters of the text before it was cut; `None` if it was not cut.
    pub(super) async fn shape(&mut self, result: &mut Result<ToolOutput, Failure>) -> Option<usize> {
        if matches!(result, Err(Failure::Host(_))) {
            self.mark = None;
        }
        let failed = result.is_err();
        let text = match result {
            Ok(output) => &mut output.value,
            Err(Failure::Refused(error)) => &mut error.message,
            Err(Failure::Fault(fault)) => &mut fault.message,
            Err(Failure::Host(message)) => message,
        };
        if failed && let Cow::Owned(shown) = text::escape_hidden(text) {
            *text = shown;
        }
        let cut_from = self.shape_main(text).await;
        match result {
            Ok(output) => self.shape_blocks(output).await,
            Err(Failure::Refused(error)) => {
                if let Some(subject) = &mut error.subject {
                    self.clean(subject);
                    if let Some((end, _)) = subject.char_indices().nth(MAX_SUBJECT) {
                        subject.truncate(end);
                    }
                }
            }
            Err(Failure::Fault(_) | Failure::Host(_)) => {}
        }
        cut_from
    }

    /// Shapes the main text. If it was reduced or stripped, the original is saved and a note with its id is appended.
    /// If the note would make the text longer than the original, the original is used.
    async fn shape_main(&mut self, text: &mut String) -> Option<usize> {
        let unreduced = self.original.take();
        let reduced = unreduced.is_some();
        let stripped = self.strip_encoded(text);
        let original = unreduced.or_else(|| stripped.is_some().then(|| text.clone()));
        if let Some(stripped) = stripped {
            *text = stripped;
        }
        let Some(original) = original.filter(|_| self.store.is_some()) else {
            return self.shape_text(text, self.budget, "").await;
        };
        let chars = original.chars().count();
        // A placeholder with the length of an id.
        let worst = reduction_note(chars, &read_output_call("0123456789abcdef"));
        let told = self.store.as_ref().is_some_and(|store| store.is_readable());
        if told && text.chars().count() + worst.chars().count() > chars {
            *text = original;
            self.reduction_undone = reduced;
            return self.shape_text(text, self.budget, "").await;
        }
        let note = match self.save(&original).await {
            Some(Ok(id)) if told => reduction_note(chars, &read_output_call(&id)),
            Some(Err(())) if told => reduction_note(chars, "it could not be saved"),
            _ => String::new(),
        };
        self.shape_text(text, self.budget, &note).await
    }

    /// Shapes the blocks. The text of each block gets the rest of the budget, and the block is dropped when nothing is
    /// left. Labels are neutralized instead of marked. They are not cut, since half an address is useless: a block
    /// whose labels do not fit is dropped.
    async fn shape_blocks(&mut self, output: &mut ToolOutput) {
        if output.content.is_empty() {
            return;
        }
        let mut left = self.budget.saturating_sub(output.value.chars().count());
        let mut gone = String::new();
        let mut blocks = Vec::with_capacity(output.content.len());
        for mut block in std::mem::take(&mut output.content) {
            self.clean_labels(&mut block);
            let labels: usize = block.labels().iter().map(|label| label.chars().count()).sum();
            if labels > left || !block.has_bounded_machine_fields() {
                gone.extend(block.text_mut().map(|text| format!("{text}\n")));
                continue;
            }
            left -= labels;
            let Some(text) = block.text_mut() else {
                blocks.push(block);
                continue;
            };
            if let Some(stripped) = self.strip_encoded(text) {
                self.save(text).await;
                *text = stripped;
            }
            if left == 0 && !text.is_empty() {
                gone.push_str(text);
                gone.push('\n');
                continue;
            }
            self.shape_text(text, left, "").await;
            left = left.saturating_sub(text.chars().count());
            blocks.push(block);
        }
        if !gone.is_empty() {
            self.save(&gone).await;
        }
        output.content = blocks;
    }

    /// Shapes one text to at most `budget` characters, including `note`, which is appended. Returns the characters
    /// before the cut; `None` if the text was not cut.
    async fn shape_text(&mut self, text: &mut String, budget: usize, note: &str) -> Option<usize> {
        let body = self.mark.as_ref().map(|mark| (mark.neutral_body(text), mark.chars()));
        let (shown, more) = body.as_ref().map_or((text.as_str(), 0), |(body, more)| (&**body, *more));
        let extra = if shown.is_empty() { 0 } else { more } + note.chars().count();
        let fits =
            budget.checked_sub(extra).is_some_and(|room| budget::char_count_if_over(shown, room).is_none());
        if fits && self.mark.is_none() && note.is_empty() {
            return None;
        }
        let total = text.chars().count();
        let mut rest = String::new();
        if !fits {
            rest = match self.save(text).await {
                Some(Ok(id)) if self.store.as_ref().is_some_and(|store| store.is_readable()) => {
                    format!("; the rest: {}", read_output_call(&id))
                }
                Some(Err(())) => "; the rest could not be saved".to_owned(),
                Some(Ok(_)) | None => rest,
            };
        }
        let room = budget.saturating_sub(note.chars().count());
        let mode = self.rules.truncate;
        let (room, note) = if room == 0 { (budget, "") } else { (room, note) };
        match &self.mark {
            Some(mark) => *text = mark.fit(text, room, mode, total, &rest),
            None if !fits => budget::shorten(text, room, mode, total, &rest),
            None => {}
        }
        // The note is the host's text, so it follows the mark.
        text.push_str(note);
        (!fits).then_some(total)
    }

    /// Saves a text. Returns its id, or `Err` if the store failed; `None` if nothing is saved for this call.
    async fn save(&mut self, text: &str) -> Option<Result<String, ()>> {
        let store = self.store.as_ref()?;
        let tool: Arc<str> = self.tool.into();
        let whole = SavedText {
            text: text.into(),
            source: self.source.map(|source| source.label().into()).unwrap_or_default(),
            tool: Arc::clone(&tool),
            untrusted: self.rules.untrusted,
        };
        match store.store.put(store.session, whole).await {
            Ok(id) => {
                let shown = id.to_string();
                if self.saved.iter().all(|kept| kept.id != id) {
                    self.saved.push(SavedOutput { id, tool, bytes: text.len() as u64 });
                }
                Some(Ok(shown))
            }
            Err(error) => {
                tracing::warn!(tool = %self.tool, %error, "the original of a cut or reduced text could not be saved");
                Some(Err(()))
            }
        }
    }

    fn strip_encoded(&self, text: &str) -> Option<String> {
        match self.rules.strip_blobs.then(|| encoded_data::strip(text))? {
            Cow::Borrowed(_) => None,
            Cow::Owned(stripped) => Some(stripped),
        }
    }

    /// Cleans a label: escapes invisible characters, and neutralizes untrusted text.
    fn clean(&self, text: &mut String) {
        if let Cow::Owned(shown) = text::escape_hidden(text) {
            *text = shown;
        }
        if self.mark.is_some()
            && let Cow::Owned(neutral) = untrusted::neutralize(text)
        {
            *text = neutral;
        }
    }

    fn clean_labels(&self, block: &mut ContentBlock) {
        match &mut block.body {
            BlockBody::Link(ResourceLink { uri, name, title, description, mime_type, .. }) => {
                [uri, name].into_iter().for_each(|text| self.clean(text));
                [title, description, mime_type].into_iter().flatten().for_each(|text| self.clean(text));
            }
            BlockBody::Embedded(EmbeddedResource { uri, mime_type, .. }) => {
                self.clean(uri);
                mime_type.iter_mut().for_each(|text| self.clean(text));
            }
            BlockBody::Image(blob) | BlockBody::Audio(blob) => self.clean(&mut blob.mime_type),
            BlockBody::Text(_) => {}
        }
    }
}

/// The `read_output` call that reads a saved text, for texts to the model.
fn read_output_call(id: &str) -> String {
    format!("{} {{\"id\": \"{id}\"}}", read_output::NAME)
}

/// The note of a reduced text.
fn reduction_note(chars: usize, whole: &str) -> String {
    format!("\n[reduced from {chars} chars; the whole: {whole}]")
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
