//! Shaping of texts: cutting, marking, saving, and removal of encoded data.

use std::borrow::Cow;
use std::mem;
use std::sync::Arc;

use toolbay_policy::hidden_chars;

use crate::call::CallContext;
use crate::call::compute::INLINE_STEPS;
use crate::call::invoke::Failure;
use crate::neutral_text;
use crate::output::budget;
use crate::output::encoded_data;
use crate::output::rules::OutputRules;
use crate::output::untrusted::UntrustedMark;
use crate::pipeline::context::batch::BatchContext;
use crate::registry::read_output;
use crate::registry::view::View;
use crate::session::output_store::{OutputStore, SavedOutput, SavedText};
use crate::tool::ToolSource;
use crate::tool::content::{BlockBody, ContentBlock, EmbeddedResource, ResourceLink, ToolOutput};
use crate::tool::fault::Fault;

/// Longest subject of an error, in characters.
const MAX_SUBJECT: usize = 1000;
/// Steps to mark a byte.
const MARK_STEPS: u64 = 4;
/// Bytes whose characters are counted, or that are searched for encoded data, in one step.
const BYTES_PER_STEP: u64 = 4;

/// Shapes the texts of one output: removes encoded data if the rules say so, marks untrusted texts, cuts long texts,
/// and saves the originals.
pub(super) struct OutputShaper<'a> {
    ctx: &'a CallContext,
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
            ctx,
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
    ///
    /// # Errors
    /// The call was cancelled, and the result is incomplete.
    pub(super) async fn shape(
        &mut self,
        result: &mut Result<ToolOutput, Failure>,
    ) -> Result<Option<usize>, Fault> {
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
        if failed {
            self.compute(text, |text, _| {
                if let Cow::Owned(shown) = hidden_chars::escape_hidden(text) {
                    *text = shown;
                }
            })
            .await?;
        }
        let cut_from = self.shape_main(text).await?;
        match result {
            Ok(output) => self.shape_blocks(&output.value, &mut output.content).await?,
            Err(Failure::Refused(error)) => {
                if let Some(details) = &mut error.details {
                    self.shape_blocks(&error.message, &mut details.content).await?;
                }
                if let Some(subject) = &mut error.subject {
                    budget::truncate(subject, MAX_SUBJECT);
                    self.clean(subject);
                    budget::truncate(subject, MAX_SUBJECT);
                }
            }
            Err(Failure::Fault(_) | Failure::Host(_)) => {}
        }
        Ok(cut_from)
    }

    /// Changes a text: a short one on the calling thread, a long one on the threads for long work. The text is lost if the
    /// call is cancelled.
    async fn compute<T: Send + 'static>(
        &self,
        text: &mut String,
        work: impl FnOnce(&mut String, Option<&UntrustedMark>) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        // A marked text was cut to the budget before, to at most four bytes for each character.
        let marked = if self.mark.is_some() { text.len().min(self.budget.saturating_mul(4)) } else { 0 };
        let steps = (marked as u64).saturating_mul(MARK_STEPS) + text.len() as u64 / BYTES_PER_STEP;
        if steps <= INLINE_STEPS {
            return Ok(work(text, self.mark.as_ref()));
        }
        let (mut owned, mark) = (mem::take(text), self.mark.clone());
        let work = move || {
            let done = work(&mut owned, mark.as_ref());
            (owned, done)
        };
        let (owned, done) = self.ctx.compute(steps, work).await?;
        *text = owned;
        Ok(done)
    }

    /// Shapes the main text. If it was reduced or stripped, the original is saved and a note with its id is appended.
    /// If the note would make the text longer than the original, the original is used.
    async fn shape_main(&mut self, text: &mut String) -> Result<Option<usize>, Fault> {
        let unreduced = self.original.take();
        let reduced = unreduced.is_some();
        let unstripped = if self.rules.strip_blobs { self.strip_encoded(text).await? } else { None };
        let original = unreduced.or(unstripped);
        let Some(original) = original.filter(|_| self.store.is_some()) else {
            return self.shape_text(text, self.budget, "").await;
        };
        let chars = original.chars().count();
        // A placeholder with the length of an id.
        let worst = reduction_note(chars, &read_output_call("0123456789abcdef"));
        let is_readable = self.store.as_ref().is_some_and(|store| store.is_readable());
        if is_readable && text.chars().count() + worst.chars().count() > chars {
            *text = original;
            self.reduction_undone = reduced;
            return self.shape_text(text, self.budget, "").await;
        }
        let note = match self.save(&original).await {
            Some(Ok(id)) if is_readable => reduction_note(chars, &read_output_call(&id)),
            Some(Err(())) if is_readable => reduction_note(chars, "it could not be saved"),
            _ => String::new(),
        };
        self.shape_text(text, self.budget, &note).await
    }

    /// Shapes the blocks other than `text`. The text of each block gets the rest of the budget, and the block is dropped
    /// when nothing is left. Labels are neutralized instead of marked. They are not cut, since half an address is
    /// useless: a block whose labels do not fit is dropped.
    async fn shape_blocks(&mut self, text: &str, content: &mut Vec<ContentBlock>) -> Result<(), Fault> {
        if content.is_empty() {
            return Ok(());
        }
        let mut left = self.budget.saturating_sub(text.chars().count());
        let mut removed = String::new();
        let mut blocks = Vec::with_capacity(content.len());
        for mut block in std::mem::take(content) {
            // Only labels that fit are cleaned, which can make them longer.
            let fits = label_chars(&block) <= left && block.has_bounded_machine_fields();
            if fits {
                self.clean_labels(&mut block);
            }
            let labels = label_chars(&block);
            if !fits || labels > left {
                removed.extend(block.text_mut().map(|text| format!("{text}\n")));
                continue;
            }
            left -= labels;
            let Some(text) = block.text_mut() else {
                blocks.push(block);
                continue;
            };
            if self.rules.strip_blobs
                && let Some(original) = self.strip_encoded(text).await?
            {
                self.save(&original).await;
            }
            if left == 0 && !text.is_empty() {
                removed.push_str(text);
                removed.push('\n');
                continue;
            }
            self.shape_text(text, left, "").await?;
            left = left.saturating_sub(text.chars().count());
            blocks.push(block);
        }
        if !removed.is_empty() {
            self.save(&removed).await;
        }
        *content = blocks;
        Ok(())
    }

    /// Shapes one text to at most `budget` characters, including `note`, which is appended. Returns the characters
    /// before the cut; `None` if the text was not cut.
    async fn shape_text(
        &mut self,
        text: &mut String,
        budget: usize,
        note: &str,
    ) -> Result<Option<usize>, Fault> {
        let note_chars = note.chars().count();
        let over =
            self.compute(text, move |text, mark| chars_if_over(text, mark, budget, note_chars)).await?;
        if over.is_none() && self.mark.is_none() && note.is_empty() {
            return Ok(None);
        }
        let mut rest = String::new();
        if over.is_some() {
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
        self.compute(text, move |text, mark| match (mark, over) {
            // Nothing is left out of a text that fits.
            (Some(mark), _) => *text = mark.fit(text, room, mode, over.unwrap_or_default(), &rest),
            (None, Some(total)) => *text = budget::shorten(text, room, mode, total, &rest),
            (None, None) => {}
        })
        .await?;
        // The note is the host's text, so it follows the mark.
        text.push_str(note);
        Ok(over)
    }

    /// Saves a text. Returns its id, or `Err` if the store failed; `None` if nothing is saved for this call.
    async fn save(&mut self, text: &str) -> Option<Result<String, ()>> {
        let store = self.store.as_ref()?;
        let tool: Arc<str> = self.tool.into();
        let saved = SavedText {
            text: text.into(),
            source: self.source.map(|source| source.label().into()).unwrap_or_default(),
            tool: Arc::clone(&tool),
            untrusted: self.rules.untrusted,
        };
        match store.store.put(store.session, saved).await {
            Ok(id) => {
                let shown = id.to_string();
                if self.saved.iter().all(|output| output.id != id) {
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

    /// Replaces encoded data in a text. Returns the original; `None` if the text does not change.
    async fn strip_encoded(&self, text: &mut String) -> Result<Option<String>, Fault> {
        self.compute(text, |text, _| match encoded_data::strip(text) {
            Cow::Borrowed(_) => None,
            Cow::Owned(stripped) => Some(mem::replace(text, stripped)),
        })
        .await
    }

    /// Cleans a label: escapes invisible characters, and neutralizes untrusted text.
    fn clean(&self, text: &mut String) {
        if let Cow::Owned(shown) = hidden_chars::escape_hidden(text) {
            *text = shown;
        }
        if self.mark.is_some()
            && let Cow::Owned(neutral) = neutral_text::neutralize(text)
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

/// The characters of a text that does not fit into the budget with its mark and a note. `None` if it fits.
fn chars_if_over(
    text: &str,
    mark: Option<&UntrustedMark>,
    budget: usize,
    note_chars: usize,
) -> Option<usize> {
    let body = mark.map_or(text, |mark| mark.strip_mark(text));
    let around = mark.filter(|_| !body.is_empty()).map_or(0, UntrustedMark::chars);
    let fits = budget.checked_sub(around + note_chars).is_some_and(|room| {
        budget::char_count_if_over(body, room).is_none()
            // A marked text can be longer.
            && (mark.is_none() || budget::char_count_if_over(&neutral_text::neutral_text(body), room).is_none())
    });
    (!fits).then(|| text.chars().count())
}

/// The characters of a block's labels.
fn label_chars(block: &ContentBlock) -> usize {
    block.labels().iter().map(|label| label.chars().count()).sum()
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
