//! Calls that a call makes: the same way as all others, below it.
//!
//! They run under the view, the session, the turn and the rules of the call that makes them, end with it, and are recorded
//! with its id. What they answer goes to a program: whole, without marks, kept nowhere. That others wrote in it is
//! remembered, and the call that heard it is marked as if it had come from them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use super::schedule::BatchScheduler;
use super::{Batch, Delivered, Gates, Pipeline, Whole, units};
use crate::call::invoke::BoxFuture;
use crate::call::invoke::onward::{Answered, Callable, Inner, MAX_CHARS, MayCall, Onward, TakeAnswer, WayOn};
use crate::call::{CallContext, ToolCall, TurnContext};
use crate::registry::view::{Entry, View};
use crate::session::TurnCount;
use crate::tool::content::{ErrorCode, ToolError};
use crate::tool::reason;

/// What the calls know of the one that makes them.
#[derive(Debug, Clone)]
pub(super) struct Outer {
    maker: Arc<Maker>,
    /// When it ends at the latest.
    pub(super) ends: Instant,
}

/// A call that makes others.
#[derive(Debug)]
struct Maker {
    id: Arc<str>,
    tool: Arc<str>,
    may: Arc<dyn MayCall>,
    /// Whether a call answered with what others wrote.
    heard_others: AtomicBool,
    /// 0 for a call that a model made.
    depth: usize,
    /// Calls so far to which the model's call has led.
    made: Arc<AtomicU32>,
}

impl Outer {
    pub(super) fn id(&self) -> &str {
        &self.maker.id
    }

    /// Refuses what was not granted, before anything is told of the tool.
    pub(super) fn permit(&self, tool: &str) -> Result<(), ToolError> {
        if self.maker.may.may_call(tool) {
            return Ok(());
        }
        let refusal = self.maker.may.refusal(tool);
        let text = refusal.for_model(&self.maker.tool);
        Err(ToolError::new(ErrorCode::NotAvailable, text).about("denied").with_hint(refusal.hint))
    }

    /// Notes that what it is told others wrote.
    pub(super) fn heard_others(&self) {
        self.maker.heard_others.store(true, Ordering::Release);
    }
}

/// A call that may make others: what it was granted, and what it heard.
#[derive(Debug)]
pub(super) struct Onto {
    may: Arc<dyn MayCall>,
    maker: std::sync::OnceLock<Arc<Maker>>,
}

impl Onto {
    /// What a call of a tool may make; `None`: nothing.
    pub(super) fn of(entry: &Entry, ctx: &CallContext) -> Option<Self> {
        let may = entry.invoker.may_call(ctx.profile.as_deref())?;
        Some(Self { may, maker: std::sync::OnceLock::new() })
    }

    /// Whether what it was told others wrote.
    pub(super) fn heard_others(&self) -> bool {
        self.maker.get().is_some_and(|maker| maker.heard_others.load(Ordering::Acquire))
    }

    /// The way to the calls.
    pub(super) fn way(&self, batch: Batch<'_>, ctx: &Arc<CallContext>) -> WayOn {
        let above = batch.outer.map(|outer| &outer.maker);
        let make = || Maker {
            id: Arc::clone(&ctx.call_id),
            tool: Arc::clone(&ctx.tool),
            may: Arc::clone(&self.may),
            heard_others: AtomicBool::new(false),
            depth: above.map_or(0, |maker| maker.depth + 1),
            made: above.map_or_else(Arc::default, |maker| Arc::clone(&maker.made)),
        };
        let maker = Arc::clone(self.maker.get_or_init(|| Arc::new(make())));
        Arc::new(Below {
            maker,
            ctx: Arc::clone(ctx),
            pipeline: batch.pipeline.clone(),
            view: batch.view.clone(),
            turn: Arc::clone(batch.turn),
            gates: Arc::clone(batch.gates),
            turn_count: batch.turn_count.clone(),
        })
    }
}

/// Where the calls are made.
#[derive(Debug)]
struct Below {
    maker: Arc<Maker>,
    /// The call that makes the others.
    ctx: Arc<CallContext>,
    pipeline: Pipeline,
    view: View,
    turn: Arc<TurnContext>,
    gates: Arc<Gates>,
    turn_count: Option<Arc<TurnCount>>,
}

impl Onward for Below {
    fn depth(&self) -> usize {
        self.maker.depth + 1
    }

    fn count(&self, calls: u32, most: u32) -> Option<u32> {
        let more = |made: u32| made.checked_add(calls).filter(|made| *made <= most);
        self.maker.made.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()
    }

    fn tools(&self) -> Vec<Callable> {
        let granted = |entry: &&Arc<Entry>| self.maker.may.may_call(entry.def.name.as_str());
        self.view.discoverable().filter(granted).map(|entry| callable(entry)).collect()
    }

    fn call<'a>(&'a self, inner: Inner, take: TakeAnswer<'a>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Inner { calls, at_once, ends } = inner;
            let (below, count) = (self.turn.cancel.child_token(), calls.len());
            let _end = below.clone().drop_guard();
            let turn = TurnContext {
                budget_chars: MAX_CHARS,
                cancel: below,
                // It is the program's to say how far it is.
                progress: None,
                ..TurnContext::clone(&self.turn)
            };
            let whole = Whole {
                pipeline: self.pipeline.clone(),
                view: self.view.clone(),
                turn: Arc::new(turn),
                gates: Arc::clone(&self.gates),
                turn_count: self.turn_count.clone(),
                count,
                outer: Some(Outer { maker: Arc::clone(&self.maker), ends }),
            };
            let calls = calls.into_iter().map(|call| self.named(call)).collect();
            let take = |index, delivered: Delivered| {
                let Delivered { result, cut_from_chars, hints, .. } = delivered;
                // The program gets the model's text; the operator hears of it from the call that made this one.
                hints.into_iter().for_each(|hint| self.ctx.advise(hint));
                take(index, Answered { result, cut: cut_from_chars.is_some() });
            };
            BatchScheduler::run_nested(whole, units(&self.view, calls), at_once, take).await;
        })
    }
}

impl Below {
    fn named(&self, call: ToolCall) -> ToolCall {
        ToolCall { id: format!("{}/{}", self.maker.id, call.id).into(), ..call }
    }
}

fn callable(entry: &Entry) -> Callable {
    let schema = &entry.def.input_schema;
    let schema = if entry.asks_reason() { reason::without(schema) } else { schema.value().clone() };
    Callable {
        name: entry.def.name.as_str().to_owned(),
        description: entry.def.description.clone(),
        input_schema: schema.to_string(),
        output_schema: entry.def.output_schema.as_ref().map(|schema| schema.value().to_string()),
    }
}
