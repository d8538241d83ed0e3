//! Who is asked whether a call may happen: the person at the terminal, or whoever wrote the command line.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;
use tokio::sync::Mutex;
use toolbay::{Answer, Approver, Question};
use toolbay_core::call::invoke::BoxFuture;
use toolbay_policy::text::visible;

/// The terminal of this process, whatever stdin and stdout are.
const TERMINAL: &str = "/dev/tty";
/// Longest arguments that are shown, in characters.
const MAX_SHOWN: usize = 2000;
/// Longest answer that is read, in bytes.
const MAX_LINE: usize = 1000;
/// How often the terminal is looked at for an answer.
const LOOK: Duration = Duration::from_millis(30);

/// Who answers, by the command line; `None`: there is nobody.
pub(crate) fn approver(yes: bool, deny: bool) -> Option<Arc<dyn Approver>> {
    if yes {
        return Some(Arc::new(Settled(Answer::Yes)));
    }
    if deny {
        return Some(Arc::new(Settled(Answer::No(Some("`--deny` was given".to_owned())))));
    }
    let terminal =
        open_terminal().inspect_err(|error| tracing::debug!(%error, "there is no terminal")).ok()?;
    Some(Arc::new(Person { terminal: Mutex::new(terminal) }))
}

/// Without blocking: a question can be taken back, and no thread is left that swallows the next answer.
fn open_terminal() -> std::io::Result<File> {
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).unwrap_or_default();
    File::options().read(true).write(true).custom_flags(flags).open(TERMINAL)
}

/// Whoever wrote the command line has answered.
#[derive(Debug)]
struct Settled(Answer);

impl Approver for Settled {
    fn ask<'a>(&'a self, _: &'a Question) -> BoxFuture<'a, Answer> {
        Box::pin(std::future::ready(self.0.clone()))
    }
}

/// The person at the terminal, who is asked one thing at a time.
#[derive(Debug)]
struct Person {
    terminal: Mutex<File>,
}

impl Approver for Person {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let mut terminal = self.terminal.lock().await;
            let answer = ask(&mut terminal, question).await;
            answer.unwrap_or_else(|error| Answer::No(Some(format!("the terminal is gone: {error}"))))
        })
    }
}

async fn ask(terminal: &mut File, question: &Question) -> std::io::Result<Answer> {
    // What was typed before the question is no answer to it.
    while matches!(terminal.read(&mut [0; 256]), Ok(1..)) {}
    let mut text = shown(question);
    loop {
        write(terminal, &text).await?;
        if let Some(answer) = understood(&read_line(terminal).await?) {
            return Ok(answer);
        }
        text = "y, n or a: ".to_owned();
    }
}

/// The question, in which nothing moves the cursor or hides: the arguments are a model's.
fn shown(question: &Question) -> String {
    let args = question.args.to_string();
    let total = args.chars().count();
    let mut head: String = args.chars().take(MAX_SHOWN).collect();
    if total > MAX_SHOWN {
        head.push_str(&format!("… ({total} characters)"));
    }
    format!(
        "{} ({}) wants to run: {}\n  {}\nallow it? [y]es, [n]o, [a]lways in this run: ",
        visible(&question.tool),
        visible(&question.source),
        visible(&question.reason).replace('\n', " "),
        visible(&head).replace('\n', " "),
    )
}

/// What an answer means; `None`: nothing.
fn understood(line: &str) -> Option<Answer> {
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Some(Answer::Yes),
        "a" | "always" => Some(Answer::Always),
        "n" | "no" => Some(Answer::No(None)),
        _ => None,
    }
}

async fn write(terminal: &mut File, text: &str) -> std::io::Result<()> {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        match terminal.write(rest) {
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => tokio::time::sleep(LOOK).await,
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
            Err(error) if error.kind() == ErrorKind::WouldBlock => tokio::time::sleep(LOOK).await,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_shows_what_would_hide() {
        let question = Question {
            call_id: "1".to_owned(),
            tool: "p__t".to_owned(),
            source: "plugin:p".to_owned(),
            args: serde_json::json!({"path": "a\u{202e}b\u{1b}[2Jc\n", "long": "x".repeat(5000)}),
            reason: "rule 1 of the policy says `ask`".to_owned(),
        };
        let text = shown(&question);
        assert!(!text.contains(['\u{202e}', '\u{1b}']), "{text}");
        assert!(
            text.contains("p__t (plugin:p) wants to run: rule 1") && text.contains("characters)"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn only_an_answer_is_an_answer() {
        for (line, expect) in [
            ("y\n", Some(Answer::Yes)),
            (" YES \n", Some(Answer::Yes)),
            ("a\n", Some(Answer::Always)),
            ("n\n", Some(Answer::No(None))),
            ("\n", None),
            ("yess\n", None),
        ] {
            assert_eq!(understood(line), expect);
        }
    }
}
