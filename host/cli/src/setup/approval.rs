//! Approval of calls: by the person at the terminal, or by a flag of the command line.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;
use tokio::sync::Mutex;
use toolbay::{ApprovalReply, ApprovalRequest, Approver};
use toolbay_core::call::invoke::BoxFuture;
use toolbay_policy::hidden_chars::escape_hidden;

/// The controlling terminal. stdin and stdout may be pipes.
const TERMINAL: &str = "/dev/tty";
/// Most characters of arguments that a question shows.
const MAX_SHOWN: usize = 2000;
/// Most bytes of a reply.
const MAX_LINE: usize = 1000;
/// How often the terminal is polled for a reply.
const POLL_INTERVAL: Duration = Duration::from_millis(30);

/// The approver for the flags of a command; `None`: there is no flag and no terminal.
pub(crate) fn approver(yes: bool, deny: bool) -> Option<Arc<dyn Approver>> {
    if yes {
        return Some(Arc::new(FixedApprover(ApprovalReply::Yes)));
    }
    if deny {
        return Some(Arc::new(FixedApprover(ApprovalReply::No(Some("`--deny` was given".to_owned())))));
    }
    let terminal =
        open_terminal().inspect_err(|error| tracing::debug!(%error, "there is no terminal")).ok()?;
    Some(Arc::new(TerminalApprover { terminal: Mutex::new(terminal) }))
}

/// Opens the terminal without blocking: a call that is cancelled leaves no thread that swallows the next reply.
fn open_terminal() -> std::io::Result<File> {
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).unwrap_or_default();
    File::options().read(true).write(true).custom_flags(flags).open(TERMINAL)
}

/// Answers every request as the command line says.
#[derive(Debug)]
struct FixedApprover(ApprovalReply);

impl Approver for FixedApprover {
    fn ask<'a>(&'a self, _: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalReply> {
        Box::pin(std::future::ready(self.0.clone()))
    }
}

/// Asks the person at the terminal, one request at a time.
#[derive(Debug)]
struct TerminalApprover {
    terminal: Mutex<File>,
}

impl Approver for TerminalApprover {
    fn ask<'a>(&'a self, question: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalReply> {
        Box::pin(async move {
            let mut terminal = self.terminal.lock().await;
            let answer = ask(&mut terminal, question).await;
            answer.unwrap_or_else(|error| ApprovalReply::Unanswered(format!("the terminal is gone: {error}")))
        })
    }
}

async fn ask(terminal: &mut File, question: &ApprovalRequest) -> std::io::Result<ApprovalReply> {
    // Input from before the question does not answer it.
    while matches!(terminal.read(&mut [0; 256]), Ok(1..)) {}
    let mut text = format_request(question);
    loop {
        write(terminal, &text).await?;
        if let Some(answer) = parse_reply(&read_line(terminal).await?) {
            return Ok(answer);
        }
        text = "y, n or a: ".to_owned();
    }
}

/// The question. A model wrote the arguments, so control and invisible characters are escaped.
fn format_request(question: &ApprovalRequest) -> String {
    format!(
        "{} ({}) wants to run: {}\n  asked by {}\n  {}\nallow it? [y]es, [n]o, [a]lways in this run: ",
        escape_hidden(&question.tool),
        escape_hidden(&question.source),
        escape_hidden(&question.reason).replace('\n', " "),
        escape_hidden(&question.caller.to_string()).replace('\n', " "),
        escape_hidden(&question.preview.cut(MAX_SHOWN)).replace('\n', " "),
    )
}

/// Parses a reply; `None`: it is not one.
fn parse_reply(line: &str) -> Option<ApprovalReply> {
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Some(ApprovalReply::Yes),
        "a" | "always" => Some(ApprovalReply::Always),
        "n" | "no" => Some(ApprovalReply::No(None)),
        _ => None,
    }
}

async fn write(terminal: &mut File, text: &str) -> std::io::Result<()> {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        match terminal.write(rest) {
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => tokio::time::sleep(POLL_INTERVAL).await,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn read_line(terminal: &mut File) -> std::io::Result<String> {
    let (mut line, mut bytes) = (Vec::new(), [0; 256]);
    while !line.contains(&b'\n') && line.len() < MAX_LINE {
        match terminal.read(&mut bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => line.extend_from_slice(bytes.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => tokio::time::sleep(POLL_INTERVAL).await,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolbay_core::approval::{ApprovalCaller, ArgumentsPreview};
    use toolbay_core::tool::canonical;

    #[test]
    fn a_question_escapes_invisible_characters() {
        let args = serde_json::json!({"path": "a\u{202e}b\u{1b}[2Jc\n", "long": "x".repeat(5000)});
        let question = ApprovalRequest {
            call_id: "1".to_owned(),
            tool: "p__t".to_owned(),
            source: "plugin:p".to_owned(),
            caller: ApprovalCaller { agent: Some("agent\u{202e}\n".to_owned()), ..ApprovalCaller::default() },
            preview: ArgumentsPreview::new(&args.to_string(), canonical::sha256(&args)),
            args_text: args.to_string().into(),
            args: args.into(),
            reason: "rule 1 of the policy says `ask`".to_owned(),
        };
        let text = format_request(&question);
        assert!(!text.contains(['\u{202e}', '\u{1b}']), "{text}");
        assert!(
            text.contains("p__t (plugin:p) wants to run: rule 1") && text.contains("characters)"),
            "{text}"
        );
        assert!(text.contains("asked by agent\\u{202e}"), "{text}");
        assert_eq!(text.lines().count(), 4, "{text}");
    }

    #[test]
    fn only_valid_replies_are_accepted() {
        for (line, expect) in [
            ("y\n", Some(ApprovalReply::Yes)),
            (" YES \n", Some(ApprovalReply::Yes)),
            ("a\n", Some(ApprovalReply::Always)),
            ("n\n", Some(ApprovalReply::No(None))),
            ("\n", None),
            ("yess\n", None),
        ] {
            assert_eq!(parse_reply(line), expect);
        }
    }
}
