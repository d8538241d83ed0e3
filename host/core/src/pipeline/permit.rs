//! Whether a call happens that could: what the rules say, and whoever is asked.

use std::fmt::Write;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::Value;
use toolbay_policy::permission::{Action, Permissions, Verdict};
use toolbay_policy::quantity;
use toolbay_policy::refusal;

use super::Batch;
use super::way::Way;
use crate::audit;
use crate::call::approval::{Answer, Approver, Decision, Question};
use crate::call::dialog::INPUT_REQUIRED;
use crate::call::fault::{Fault, FaultKind};
use crate::call::invoke::Failure;
use crate::call::{Admitted, CallContext};
use crate::registry::event::Event;
use crate::registry::view::Held;
use crate::session::Approval;
use crate::tool::ToolDef;
use crate::tool::content::{ErrorCode, ToolError};

/// Longest text of a person who said no, in characters.
const MAX_ANSWER: usize = 300;

/// What became of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// There is none left: nobody had to be asked, or they said yes.
    Settled,
    /// A dry run asks nobody; a call would.
    Open,
}

impl Asked {
    pub(super) fn is_left_open(self) -> bool {
        self == Self::Open
    }
}

/// What the rules say of a call, and whose they are: the policy's, or the profile's where those are stricter.
struct Ruling<'a> {
    tool: &'a ToolDef,
    verdict: Verdict<'a>,
    profile: Option<&'a str>,
}

impl Way {
    /// Looks the call up in the rules, and asks if they say so. Nothing is looked at where there are no rules.
    pub(super) async fn permit(
        &mut self,
        batch: Batch<'_>,
        held: Held<'_>,
        call: &Admitted,
        ctx: &Arc<CallContext>,
    ) -> Result<Asked, Failure> {
        let entry = held.entry();
        let policy = &batch.gates.permissions;
        let profile = held.profile().map(|profile| &profile.permissions);
        let open = policy.is_open() && profile.is_none_or(Permissions::is_open);
        if open && !entry.def.traits.needs_approval {
            return Ok(Asked::Settled);
        }
        let ruling = rule(batch, held, call);
        self.decided(&ruling, false, None);
        match ruling.verdict.action {
            Action::Allow => self.decided(&ruling, true, None),
            Action::Deny => return Err(denied(batch, ctx, &ruling, None)),
            // In a box: that most calls ask nobody, they are not to pay for in memory.
            Action::Ask => return Box::pin(self.ask(batch, &ruling, call, ctx)).await,
        }
        Ok(Asked::Settled)
    }

    async fn ask(
        &mut self,
        batch: Batch<'_>,
        ruling: &Ruling<'_>,
        call: &Admitted,
        ctx: &Arc<CallContext>,
    ) -> Result<Asked, Failure> {
        let session = &batch.turn.session;
        let rule = ruling.verdict.rule.map(|(_, rule)| rule);
        let approval = Approval::new(ruling.tool, rule, ruling.profile);
        let of_session = session.approver().map(|approver| (approver, "session"));
        let of_turn = batch.turn.approver.as_ref().map(|approver| (approver, "client"));
        let of_host = batch.pipeline.approver.as_ref().map(|approver| (approver, "host"));
        let Some((approver, by)) = of_turn.or(of_session).or(of_host) else {
            return Err(denied(batch, ctx, ruling, Some("there is nobody to ask")));
        };
        if ctx.turn.dry_run && !session.approved(&approval) {
            return Ok(Asked::Open);
        }
        let _one_at_a_time = tokio::select! {
            biased;
            () = ctx.cancel().cancelled() => return Err(cancelled()),
            turn = session.asks() => turn,
        };
        if session.approved(&approval) {
            self.decided(ruling, true, Some("before"));
            return Ok(Asked::Settled);
        }
        self.decided(ruling, false, Some(by));
        let (tool, call_id) = (Arc::clone(&ctx.tool), Arc::clone(&ctx.call_id));
        batch.pipeline.events.tell(Event::PermissionAsked { tool, call_id });
        let question = Question {
            call_id: audit::cut(&ctx.call_id),
            tool: ruling.tool.name.as_str().to_owned(),
            source: ruling.tool.source.label(),
            args: Value::clone(&call.parsed),
            reason: ruling.because(),
        };
        let no = match answer(batch, approver, &question, ctx).await? {
            Ok(answer) => {
                if answer == Answer::Always {
                    session.approve(approval);
                }
                match answer {
                    Answer::Yes | Answer::Always => {
                        self.decided(ruling, true, Some(by));
                        return Ok(Asked::Settled);
                    }
                    Answer::Later => return Err(self.later(batch, ctx)),
                    Answer::No(None) => "the answer was no".to_owned(),
                    Answer::No(Some(text)) => {
                        let text: String = text.chars().take(MAX_ANSWER).collect();
                        format!("the answer was no: {text}")
                    }
                }
            }
            Err(silence) => silence,
        };
        Err(denied(batch, ctx, ruling, Some(&no)))
    }

    /// The call ends here and comes again with the answer, so it is not counted: the second time is the first.
    fn later(&self, batch: Batch<'_>, ctx: &CallContext) -> Failure {
        batch.turn.session.take_back(batch.turn_count.as_deref(), self.call_sha256.as_ref());
        let text = format!("Tool {} was not run: whether it may is to be answered first", ctx.tool);
        ToolError::new(ErrorCode::NotAvailable, text).about(INPUT_REQUIRED).into()
    }

    fn decided(&mut self, ruling: &Ruling<'_>, allowed: bool, by: Option<&'static str>) {
        self.permission = Some(Decision {
            action: ruling.verdict.action,
            rule: ruling.verdict.rule.map(|(place, _)| place).filter(|place| *place > 0),
            of_profile: ruling.profile.is_some(),
            allowed,
            by,
        });
    }
}

/// The stricter of the policy's and the profile's verdicts; of two that are as strict, the policy's.
fn rule<'a>(batch: Batch<'a>, held: Held<'a>, call: &Admitted) -> Ruling<'a> {
    let entry = held.entry();
    let tool = &*entry.def;
    let tags: Vec<&str> = entry.tags().iter().map(|tag| &**tag).collect();
    let decide = |permissions: &'a Permissions| permissions.decide(tool.subject(&tags), &call.parsed);
    let policy = decide(&batch.gates.permissions);
    match held.profile().map(|profile| decide(&profile.permissions)) {
        Some(verdict) if verdict.action > policy.action => {
            Ruling { tool, verdict, profile: held.profile_name().map(|name| &**name) }
        }
        Some(_) | None => Ruling { tool, verdict: policy, profile: None },
    }
}

/// The answer of whoever is asked, or why there is none. The end of the call is the end of the question.
async fn answer(
    batch: Batch<'_>,
    approver: &Arc<dyn Approver>,
    question: &Question,
    ctx: &CallContext,
) -> Result<Result<Answer, String>, Failure> {
    let patience = batch.gates.permissions.ask_timeout;
    // In a block of its own: the method itself may panic before it makes a future.
    let asked = AssertUnwindSafe(async { approver.ask(question).await }).catch_unwind();
    tokio::select! {
        biased;
        () = ctx.cancel().cancelled() => Err(cancelled()),
        answer = asked => Ok(answer.map_err(|_| {
            tracing::error!(tool = %ctx.tool, "an approver panicked; that is a no");
            "whoever was asked failed".to_owned()
        })),
        () = tokio::time::sleep(patience) => {
            let waited = quantity::show_duration(patience);
            Ok(Err(format!("nobody answered within {waited} (`[permissions] ask_timeout`)")))
        }
    }
}

fn cancelled() -> Failure {
    Fault::new(FaultKind::Cancelled, "the call was cancelled before it was approved").into()
}

fn denied(batch: Batch<'_>, ctx: &CallContext, ruling: &Ruling<'_>, no: Option<&str>) -> Failure {
    let mut because = ruling.because();
    if let Some(no) = no {
        _ = write!(because, ", and {no}");
    }
    let (tool, call_id) = (Arc::clone(&ctx.tool), Arc::clone(&ctx.call_id));
    let event = Event::PermissionDenied { tool, call_id, reason: Some(because.clone()) };
    batch.pipeline.events.tell(event);
    let name = ruling.tool.name.as_str();
    let text =
        format!("Tool {name} is denied by permission policy: {because}: {}", refusal::not_permitted(name));
    ToolError::new(ErrorCode::NotAvailable, text)
        .about("permission")
        .with_hint(Some(ruling.to_allow()))
        .into()
}

impl Ruling<'_> {
    /// Which rule says what, and why.
    fn because(&self) -> String {
        let action = self.verdict.action.as_str();
        let table = self.profile.map_or_else(|| "the policy".to_owned(), |name| format!("[profile.{name}]"));
        match self.verdict.rule {
            Some((0, rule)) => {
                format!("{} is `{action}`", rule.reason.as_deref().unwrap_or("`permission` of its section"))
            }
            Some((place, rule)) => {
                let reason = rule.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
                format!("rule {place} of {table} says `{action}`{reason}")
            }
            None if self.verdict.by_author => {
                "its author wants every call approved (`needs_approval`)".to_owned()
            }
            None => format!("no rule of {table} fits, and its `default` is `{action}`"),
        }
    }

    /// The lines that would allow the call.
    fn to_allow(&self) -> String {
        let name = self.tool.name.as_str();
        if let Some((0, rule)) = self.verdict.rule {
            let place = rule.reason.as_deref().unwrap_or("`permission` of its section");
            return format!("To allow it without asking, take {place} out of the policy.");
        }
        let table =
            self.profile.map_or_else(|| "rule".to_owned(), |profile| format!("profile.{profile}.rule"));
        let place = self.verdict.rule.map(|(place, _)| format!(" before rule {place}")).unwrap_or_default();
        format!(
            "To allow it without asking, write in the policy{place}:\n[[{table}]]\ntool = \"{name}\"\naction = \"allow\""
        )
    }
}
