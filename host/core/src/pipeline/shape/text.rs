//! The texts of a result as the caller gets them.

use std::borrow::Cow;
use std::sync::Arc;

use toolbay_policy::text;

use crate::call::CallContext;
use crate::call::invoke::Failure;
use crate::output::blobs;
use crate::output::budget;
use crate::output::delivery::Rules;
use crate::output::untrusted::{self, Mark};
use crate::pipeline::batch::BatchContext;
use crate::registry::read_output;
use crate::registry::view::View;
use crate::session::spool::{Spool, Spooled, SpooledText};
use crate::tool::ToolSource;
use crate::tool::content::{BlockBody, ContentBlock, EmbeddedResource, ResourceLink, ToolOutput};

/// Longest subject of an error, in characters.
const MAX_SUBJECT: usize = 1000;

/// Shapes the texts of one output: removes encoded bytes where the rules say so, marks what others wrote, cuts what is too
/// long, and saves what was taken away.
pub(super) struct OutputShaper<'a> {
    budget: usize,
    rules: Rules,
    pub(super) mark: Option<Mark>,
    store: Option<Store<'a>>,
    source: Option<&'a ToolSource>,
    tool: &'a str,
    /// The text before it was reduced.
    original: Option<String>,
    /// The texts that were saved.
    pub(super) saved: Vec<Spooled>,
    /// The reducer saved fewer characters than its note takes, so its work is not used.
    pub(super) reduction_undone: bool,
}

/// Where texts are kept, and for whom.
struct Store<'a> {
    spool: &'a dyn Spool,
    session: &'a str,
    view: &'a View,
}

impl Store<'_> {
    /// Whether the caller may call `read_output`: otherwise it is not told of it.
    fn readable(&self) -> bool {
        self.view.get_callable(read_output::NAME).is_some()
    }
}

impl<'a> OutputShaper<'a> {
    /// A shaper for the output of one call. `rules` are those of the host where the tool did not speak; `original` is the
    /// text before it was reduced.
    pub(super) fn new(
        batch: &'a BatchContext,
        ctx: &'a CallContext,
        source: Option<&'a ToolSource>,
        rules: Rules,
        original: Option<String>,
    ) -> Self {
        let tool = &*ctx.tool;
        // Nothing is saved for a session without a key, of `read_output` itself, and of what a calling tool gets.
        let store = match (batch.turn.session.key(), &batch.pipeline.spool) {
            (Some(session), Some(spool)) if tool != read_output::NAME && batch.parent.is_none() => {
                Some(Store { spool: &**spool, session, view: &batch.view })
            }
            _ => None,
        };
        let mark = source.filter(|_| rules.untrusted).map(|source| Mark::new(&source.label(), tool));
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

    /// Shapes a result. Returns how many characters the text had before it was cut, if it was.
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
        if failed && let Cow::Owned(shown) = text::visible(text) {
            *text = shown;
        }
        let cut_from = self.main(text).await;
        match result {
            Ok(output) => self.blocks(output).await,
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

    /// The main text. What was taken out of it before is kept whole, and named behind it; where that would make it longer
    /// than it was, nothing is taken out.
    async fn main(&mut self, text: &mut String) -> Option<usize> {
        let unreduced = self.original.take();
        let reduced = unreduced.is_some();
        let stripped = self.stripped(text);
        let original = unreduced.or_else(|| stripped.is_some().then(|| text.clone()));
        if let Some(stripped) = stripped {
            *text = stripped;
        }
        let Some(original) = original.filter(|_| self.store.is_some()) else {
            return self.text(text, self.budget, "").await;
        };
        let chars = original.chars().count();
        // With an id of the same length.
        let worst = note_of(chars, &way_to("0123456789abcdef"));
        let told = self.store.as_ref().is_some_and(|store| store.readable());
        if told && text.chars().count() + worst.chars().count() > chars {
            *text = original;
            self.reduction_undone = reduced;
            return self.text(text, self.budget, "").await;
        }
        let note = match self.keep(&original).await {
            Some(Ok(id)) if told => note_of(chars, &way_to(&id)),
            Some(Err(())) if told => note_of(chars, "it could not be kept"),
            _ => String::new(),
        };
        self.text(text, self.budget, &note).await
    }

    /// Texts in blocks are texts too: each gets what is left of the budget, and goes when nothing is left. What is said
    /// beside a block is not marked, but neutral; it is not cut, since half an address is none: where it does not fit, the
    /// block goes.
    async fn blocks(&mut self, output: &mut ToolOutput) {
        if output.content.is_empty() {
            return;
        }
        let mut left = self.budget.saturating_sub(output.value.chars().count());
        let mut gone = String::new();
        let mut blocks = Vec::with_capacity(output.content.len());
        for mut block in std::mem::take(&mut output.content) {
            self.labels(&mut block);
            let labels: usize = block.labels().iter().map(|label| label.chars().count()).sum();
            if labels > left || !block.has_sound_kinds() {
                gone.extend(block.text_mut().map(|text| format!("{text}\n")));
                continue;
            }
            left -= labels;
            let Some(text) = block.text_mut() else {
                blocks.push(block);
                continue;
            };
            if let Some(stripped) = self.stripped(text) {
                self.keep(text).await;
                *text = stripped;
            }
            if left == 0 && !text.is_empty() {
                gone.push_str(text);
                gone.push('\n');
                continue;
            }
            self.text(text, left, "").await;
            left = left.saturating_sub(text.chars().count());
            blocks.push(block);
        }
        if !gone.is_empty() {
            self.keep(&gone).await;
        }
        output.content = blocks;
    }

    /// One text in at most `budget` characters, `note` behind it; returns how long it was if it was cut.
    async fn text(&mut self, text: &mut String, budget: usize, note: &str) -> Option<usize> {
        let body = self.mark.as_ref().map(|mark| (mark.body(text), mark.chars()));
        let (shown, more) = body.as_ref().map_or((text.as_str(), 0), |(body, more)| (&**body, *more));
        let extra = if shown.is_empty() { 0 } else { more } + note.chars().count();
        let fits = budget.checked_sub(extra).is_some_and(|room| budget::over(shown, room).is_none());
        if fits && self.mark.is_none() && note.is_empty() {
            return None;
        }
        let total = text.chars().count();
        let mut rest = String::new();
        if !fits {
            rest = match self.keep(text).await {
                Some(Ok(id)) if self.store.as_ref().is_some_and(|store| store.readable()) => {
                    format!("; the rest: {}", way_to(&id))
                }
                Some(Err(())) => "; the rest could not be kept".to_owned(),
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
        // The host's own words, outside of the mark.
        text.push_str(note);
        (!fits).then_some(total)
    }

    /// Keeps a text: `None` where nothing is kept, else its id or that it could not be kept.
    async fn keep(&mut self, text: &str) -> Option<Result<String, ()>> {
        let store = self.store.as_ref()?;
        let tool: Arc<str> = self.tool.into();
        let whole = SpooledText {
            text: text.into(),
            source: self.source.map(|source| source.label().into()).unwrap_or_default(),
            tool: Arc::clone(&tool),
            untrusted: self.rules.untrusted,
        };
        match store.spool.put(store.session, whole).await {
            Ok(id) => {
                let shown = id.to_string();
                if self.saved.iter().all(|kept| kept.id != id) {
                    self.saved.push(Spooled { id, tool, bytes: text.len() as u64 });
                }
                Some(Ok(shown))
            }
            Err(error) => {
                tracing::warn!(tool = %self.tool, %error, "a long result was cut and the rest not kept");
                Some(Err(()))
            }
        }
    }

    fn stripped(&self, text: &str) -> Option<String> {
        match self.rules.strip_blobs.then(|| blobs::stripped(text))? {
            Cow::Borrowed(_) => None,
            Cow::Owned(stripped) => Some(stripped),
        }
    }

    /// Cleans what is said beside a result's content: nothing in it is to arrive unseen.
    fn clean(&self, text: &mut String) {
        if let Cow::Owned(shown) = text::visible(text) {
            *text = shown;
        }
        if self.mark.is_some()
            && let Cow::Owned(neutral) = untrusted::neutral(text)
        {
            *text = neutral;
        }
    }

    fn labels(&self, block: &mut ContentBlock) {
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

/// The call that reads a text.
fn way_to(id: &str) -> String {
    format!("{} {{\"id\": \"{id}\"}}", read_output::NAME)
}

/// What is said of a text that was reduced.
fn note_of(chars: usize, whole: &str) -> String {
    format!("\n[reduced from {chars} chars; the whole: {whole}]")
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
