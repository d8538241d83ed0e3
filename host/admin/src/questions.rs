//! The questions that wait for an operator: calls for which the policy says `ask`, and whose client cannot be asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::Instant;
use toolbay_core::approval::{ApprovalCaller, ApprovalReply, ApprovalRequest, Approver, MAX_PREVIEW};
use toolbay_core::call::invoke::BoxFuture;

/// Most questions at once. A further one is answered with no.
const MAX_QUESTIONS: usize = 100;
/// How long after the last request of an operator questions still wait for one.
const OPERATOR_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// The questions of a server. Cheap to clone; clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Questions {
    state: Arc<Mutex<QuestionState>>,
}

#[derive(Debug, Default)]
struct QuestionState {
    last: u64,
    waiting: BTreeMap<u64, WaitingQuestion>,
    /// The last request of an operator who may answer.
    operator_seen: Option<Instant>,
}

#[derive(Debug)]
struct WaitingQuestion {
    request: ApprovalRequest,
    since: Instant,
    reply: oneshot::Sender<ApprovalReply>,
}

/// A question that waits for an operator.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Question {
    /// The number of the question in this process, from 1.
    pub(crate) number: u64,
    /// The tool.
    pub(crate) tool: String,
    /// The label of the tool's source.
    pub(crate) source: String,
    /// Who asks.
    pub(crate) caller: ApprovalCaller,
    /// The caller's id of the call.
    pub(crate) call_id: String,
    /// Why the call needs approval.
    pub(crate) reason: String,
    /// The arguments as JSON, cut.
    pub(crate) args: String,
    /// Characters of the arguments before they were cut; absent if they were not cut.
    pub(crate) args_cut_from: Option<usize>,
    /// The time since the question was asked, in milliseconds.
    pub(crate) waited_ms: u64,
}

impl Questions {
    /// The waiting questions, the oldest first.
    pub(crate) fn list(&self) -> Vec<Question> {
        let state = self.state.lock();
        state.waiting.iter().map(|(number, waiting)| waiting.describe(*number)).collect()
    }

    /// Answers a question and returns it; `None` if it does not wait any more.
    pub(crate) fn answer(&self, number: u64, reply: ApprovalReply) -> Option<Question> {
        let waiting = self.state.lock().waiting.remove(&number)?;
        let question = waiting.describe(number);
        waiting.reply.send(reply).is_ok().then_some(question)
    }

    /// Notes that an operator who may answer is there.
    pub(crate) fn record_operator(&self) {
        self.state.lock().operator_seen = Some(Instant::now());
    }

    /// Adds a question, or says why none can be asked.
    fn add(
        &self,
        request: &ApprovalRequest,
    ) -> Result<(WaitGuard, oneshot::Receiver<ApprovalReply>), &'static str> {
        let mut state = self.state.lock();
        let now = Instant::now();
        if state.operator_seen.is_none_or(|at| now.duration_since(at) >= OPERATOR_TIMEOUT) {
            return Err("no operator is there to ask");
        }
        if state.waiting.len() >= MAX_QUESTIONS {
            return Err("too many questions wait for the operator");
        }
        state.last += 1;
        let (number, (reply, receiver)) = (state.last, oneshot::channel());
        state.waiting.insert(number, WaitingQuestion { request: request.clone(), since: now, reply });
        Ok((WaitGuard { questions: self.clone(), number }, receiver))
    }
}

impl Approver for Questions {
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalReply> {
        Box::pin(async move {
            let (_guard, receiver) = match self.add(request) {
                Ok(added) => added,
                Err(why) => return ApprovalReply::Unanswered(why.to_owned()),
            };
            let unanswered = |_| ApprovalReply::Unanswered("the server stopped asking".to_owned());
            receiver.await.unwrap_or_else(unanswered)
        })
    }
}

/// Withdraws a question whose call ended.
#[derive(Debug)]
struct WaitGuard {
    questions: Questions,
    number: u64,
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.questions.state.lock().waiting.remove(&self.number);
    }
}

impl WaitingQuestion {
    fn describe(&self, number: u64) -> Question {
        let ApprovalRequest { call_id, tool, source, caller, preview, reason, .. } = &self.request;
        Question {
            number,
            tool: tool.clone(),
            source: source.clone(),
            caller: caller.clone(),
            call_id: call_id.clone(),
            reason: reason.clone(),
            args: preview.beginning.clone(),
            args_cut_from: (preview.chars > MAX_PREVIEW).then_some(preview.chars),
            waited_ms: u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolbay_core::approval::ArgumentsPreview;
    use toolbay_core::tool::canonical;

    fn request() -> ApprovalRequest {
        let args = serde_json::json!({"text": "x".repeat(10_000)});
        ApprovalRequest {
            call_id: "1".to_owned(),
            tool: "p__t".to_owned(),
            source: "plugin:p".to_owned(),
            caller: ApprovalCaller::default(),
            preview: ArgumentsPreview::new(&args.to_string(), canonical::sha256(&args)),
            args_text: args.to_string().into(),
            args: args.into(),
            reason: "rule 1".to_owned(),
        }
    }

    async fn first(questions: &Questions) -> Question {
        loop {
            match questions.list().pop() {
                Some(question) => return question,
                None => tokio::task::yield_now().await,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_waits_only_while_an_operator_is_there() {
        let questions = Questions::default();
        let request = request();
        let no = ApprovalReply::Unanswered("no operator is there to ask".to_owned());
        assert_eq!(questions.ask(&request).await, no);
        questions.record_operator();
        let answering = async {
            let question = first(&questions).await;
            assert_eq!(question.args.chars().count(), MAX_PREVIEW);
            assert!(question.args_cut_from.is_some_and(|all| all > 10_000));
            assert!(questions.answer(question.number, ApprovalReply::Yes).is_some());
            assert!(questions.answer(question.number, ApprovalReply::Yes).is_none(), "one answer");
        };
        let (reply, ()) = tokio::join!(questions.ask(&request), answering);
        assert_eq!(reply, ApprovalReply::Yes);
        tokio::time::advance(OPERATOR_TIMEOUT).await;
        assert_eq!(questions.ask(&request).await, no);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_ends_withdraws_its_question_and_there_is_a_limit() {
        let (questions, request) = (Questions::default(), request());
        questions.record_operator();
        let mut asked: Vec<_> = (0..MAX_QUESTIONS).map(|_| questions.ask(&request)).collect();
        for one in &mut asked {
            assert!(futures_util::poll!(one).is_pending());
        }
        let no = ApprovalReply::Unanswered("too many questions wait for the operator".to_owned());
        assert_eq!(questions.ask(&request).await, no);
        drop(asked);
        assert!(questions.list().is_empty());
    }
}
