//! Servers that write to a pipe in this process. The clock is virtual.

use futures_util::FutureExt as _;
use tokio::io::DuplexStream;
use toolbay_core::call::invoke::BoxFuture;

use super::super::inbox::tests::inbox;
use super::*;

#[derive(Debug)]
struct NoProcess;

impl ProcessHandle for NoProcess {
    fn wait(&mut self) -> BoxFuture<'_, String> {
        Box::pin(async { "it ended".to_owned() })
    }
}

/// A server in the same process, and its end of the pipe.
pub(in super::super) fn pipe_process() -> (ServerProcess, DuplexStream) {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let (reader, writer) = tokio::io::split(ours);
    let process = ServerProcess {
        stdin: Box::pin(writer),
        stdout: Box::pin(reader),
        stderr: Box::pin(tokio::io::empty()),
        confinement: "no sandbox",
        handle: Box::new(NoProcess),
    };
    (process, theirs)
}

/// A link to a server in the same process, and the server's end of the pipe.
pub(in super::super) fn pipe_link() -> (StdioLink, Arc<Inbox>, DuplexStream) {
    let (process, theirs) = pipe_process();
    let inbox = Arc::new(inbox());
    (StdioLink::new(process, Arc::clone(&inbox)), inbox, theirs)
}

fn ask(id: u64) -> LinkRequest<'static> {
    LinkRequest { id, method: "x", body: b"{}\n".to_vec(), headers: Vec::new() }
}

/// What request 1 ends with when the server writes these bytes.
async fn answer_to(written: &[u8]) -> Result<String, LinkError> {
    let (link, _inbox, mut server) = pipe_link();
    server.write_all(written).await.unwrap();
    // The virtual clock advances only if nobody works: the request would wait for ever.
    let answer = tokio::time::timeout(Duration::from_secs(600), link.request(ask(1))).await;
    answer.expect("the request waits").map(|result| result.get().to_owned())
}

fn result(id: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"id\":{id}}}}}\n")
}

#[tokio::test(start_paused = true)]
async fn equal_ids_match_also_when_several_requests_are_open() {
    let (link, _inbox, mut server) = pipe_link();
    let forms = ["1.0", "\"2\"", "3", "4e0"];
    let requests = (1..=4).map(|id| link.request(ask(id)));
    let answers = futures_util::future::join_all(requests);
    let serve = async {
        for form in forms.iter().rev() {
            server.write_all(result(form).as_bytes()).await.unwrap();
        }
    };
    let (answers, ()) = tokio::join!(answers, serve);
    for (answer, form) in answers.into_iter().zip(forms) {
        assert_eq!(answer.unwrap().get(), format!("{{\"id\":{form}}}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_byte_order_mark_and_noise_are_skipped() {
    let pretty = "{\n \"level\": \"info\",\n \"took\": NaN\n}\n";
    for before in ["\u{feff}", "Starting up\n\n", pretty, "{unended\n", "[1,\n2]\n"] {
        let text = format!("{before}{}", result("1"));
        assert!(answer_to(text.as_bytes()).await.is_ok(), "{before:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_read_ends_its_request_at_once() {
    let around =
        |value: &[u8]| [br#"{"jsonrpc":"2.0","id":1,"result":{"a":"#.as_slice(), value, b"}}\n"].concat();
    for (written, part) in [
        (around(b"\xe9"), "not UTF-8: byte 0xe9"),
        (around(b"undefined"), "expected value at `undefined}}`"),
        (around(b"\"a\\\tb\""), "not JSON"),
        (around(b"\n 1\n"), "spans several lines"),
        (around(b"\"raw\nbreak\""), "control character"),
        (b"{\"id\":1,\"error\":{\"code\":1,\"code\":2}}\n".to_vec(), "not a message of JSON-RPC 2.0"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1}\n".to_vec(), "neither `result` nor `error`"),
        (b"{\"jsonrpc\":2.0,\"id\":1,\"error\":null}\n".to_vec(), "neither `result` nor `error`"),
        (result("0").into_bytes(), "it answered with id 0"),
        (result("\"abc\"").into_bytes(), "it answered with id \"abc\""),
        (result("77").into_bytes(), "instead of 1"),
    ] {
        match answer_to(&written).await {
            Err(LinkError::InvalidResponse(what)) => {
                assert!(what.text.contains(part), "{part}: {what:?}");
            }
            other => panic!("{part}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_with_odd_values_is_repaired() {
    let around =
        |value: &[u8]| [br#"{"jsonrpc":"2.0","id":1,"result":{"a":"#.as_slice(), value, b"}}\n"].concat();
    for (value, read) in
        [(&b"NaN"[..], "null"), (b"\"caf\xe9\"", "\"caf\u{fffd}\""), (b"\"a\tb\"", r#""a\u0009b""#)]
    {
        assert_eq!(answer_to(&around(value)).await.unwrap(), format!("{{\"a\":{read}}}"));
    }
    // An answer to nobody is counted, and a request is not repaired.
    let (link, inbox, mut server) = pipe_link();
    let stray = String::from_utf8(around(b"NaN")).unwrap().replace(":1,", ":9,");
    let asked = "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\"params\":NaN}\n";
    let text = [stray.as_bytes(), asked.as_bytes(), &around(b"NaN")].concat();
    server.write_all(&text).await.unwrap();
    let answer = link.request(ask(1)).await;
    assert!(
        matches!(answer, Err(LinkError::InvalidResponse(what)) if what.text.contains("it answered with id 9"))
    );
    assert!(inbox.requests.describe_start().unwrap().contains("answers with id 9"));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_damaged_ends_its_request_unless_it_follows() {
    let whole = result("1");
    let cut = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"text\":\"kept\"\n";
    for (written, part) in [
        (cut.to_vec(), "EOF while parsing"),
        (format!("PHP Warning: x {{y}} {whole}").into_bytes(), "expected value at `PHP Warning"),
        (whole.replace('"', "'").into_bytes(), "key must be a string"),
        (b"{\n\"jsonrpc\":\"2.0\",\n\"id\": 1,\n\"result\": {\n".to_vec(), "EOF while parsing"),
    ] {
        let begun = Instant::now();
        match answer_to(&written).await {
            Err(LinkError::InvalidResponse(what)) => {
                assert!(what.text.contains(part), "{part}: {what:?}");
            }
            other => panic!("{part}: {other:?}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(2), "{part}");
        // A log line that repeats the answer, before it.
        let followed = [&written[..], b"\n", whole.as_bytes()].concat();
        assert!(answer_to(&followed).await.is_ok(), "{part}");
    }
    // Two answers that were cut off.
    let (link, _inbox, mut server) = pipe_link();
    let both = async {
        server
            .write_all(&[&cut[..], &String::from_utf8_lossy(cut).replace(":1,", ":2,").into_bytes()].concat())
            .await
    };
    let (one, two, _) = tokio::join!(link.request(ask(1)), link.request(ask(2)), both);
    assert!(matches!((one, two), (Err(LinkError::InvalidResponse(_)), Err(LinkError::InvalidResponse(_)))));
    // The text around an answer may belong to another request.
    let (link, _inbox, mut server) = pipe_link();
    server.write_all(format!("secret {whole}").as_bytes()).await.unwrap();
    let waits = tokio::time::timeout(Duration::from_secs(60), link.request(ask(2)));
    let (one, two) = tokio::join!(link.request(ask(1)), waits);
    assert!(matches!(one, Err(LinkError::InvalidResponse(what)) if !what.text.contains("secret")));
    assert!(two.is_err());
    // UTF-16 after an answer.
    let (link, _inbox, mut server) = pipe_link();
    let utf16: Vec<u8> = result("2").encode_utf16().flat_map(u16::to_le_bytes).collect();
    server.write_all(&[whole.as_bytes(), &utf16].concat()).await.unwrap();
    let answers = tokio::join!(link.request(ask(1)), link.request(ask(2)));
    assert!(answers.0.is_ok());
    assert!(matches!(answers.1, Err(LinkError::InvalidResponse(what)) if what.text.contains("UTF-16")));
}

#[tokio::test(start_paused = true)]
async fn messages_that_share_a_line_or_lack_its_end_are_read() {
    let (one, two) = (result("1"), result("2"));
    for text in [
        format!("{}{two}", one.trim_end()),
        format!("{}{}", one.trim_end(), two.trim_end()),
        format!("{}{}", one, two.trim_end()),
    ] {
        let (link, _inbox, mut server) = pipe_link();
        server.write_all(text.as_bytes()).await.unwrap();
        let answers = tokio::time::timeout(Duration::from_secs(60), async {
            tokio::join!(link.request(ask(1)), link.request(ask(2)))
        });
        let answers = answers.await.unwrap();
        assert!(answers.0.is_ok() && answers.1.is_ok(), "{text}");
    }
    let (link, _inbox, mut server) = pipe_link();
    server.write_all(one.trim_end().as_bytes()).await.unwrap();
    drop(server);
    assert!(link.request(ask(1)).await.is_ok(), "the last words of a server");
    // A message without an end is named.
    let (link, inbox, mut server) = pipe_link();
    server.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"resu").await.unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(60), link.request(ask(1))).await.is_err());
    assert!(inbox.requests.describe_start().unwrap().ends_with("\"resu"));
}

#[tokio::test(start_paused = true)]
async fn an_error_without_an_id_ends_the_only_open_request() {
    let error = "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":\"boom\"}\n";
    match answer_to(error.as_bytes()).await {
        Err(LinkError::Rpc(error)) => assert_eq!(error.message, "boom"),
        other => panic!("{other:?}"),
    }
    // It can mean the notification before it, or either of two requests.
    let (link, _inbox, mut server) = pipe_link();
    server.write_all(result("0").as_bytes()).await.unwrap();
    link.request(ask(0)).await.unwrap();
    link.notify("notifications/initialized", None).await.unwrap();
    server.write_all(format!("{error}{}", result("1")).as_bytes()).await.unwrap();
    assert!(link.request(ask(1)).await.is_ok());
    let both = futures_util::future::join(link.request(ask(2)), link.request(ask(3)));
    let answers = format!("{error}{}{}", result("2"), result("3"));
    let serve = server.write_all(answers.as_bytes());
    let ((two, three), _) = tokio::join!(both, serve);
    assert!(two.is_ok() && three.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_framing_is_another_is_disconnected_at_once() {
    let body = result("1");
    let lsp = format!("Content-Length: {}\r\n\r\n{body}", body.len());
    let utf16: Vec<u8> = body.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let unended = &utf16[..utf16.len() - 2];
    for (written, part) in [(lsp.as_bytes(), "`Content-Length`"), (&utf16[..], "UTF-16"), (unended, "UTF-16")]
    {
        match answer_to(written).await {
            Err(LinkError::Closed(why)) => assert!(why.text.contains(part), "{part}: {why:?}"),
            other => panic!("{part}: {other:?}"),
        }
    }
    // A server that has answered may write such a line.
    let (link, _inbox, mut server) = pipe_link();
    let text = format!("{}Content-Length: 12\r\n{}", result("1"), result("2"));
    server.write_all(text.as_bytes()).await.unwrap();
    let answers = tokio::join!(link.request(ask(1)), link.request(ask(2)));
    assert!(answers.0.is_ok() && answers.1.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_timeout_can_name_what_came_instead_of_an_answer() {
    let (link, inbox, mut server) = pipe_link();
    server.write_all(format!("{}{}", result("1"), "canary-secret\n").as_bytes()).await.unwrap();
    link.request(ask(1)).await.unwrap();
    let mut open = Box::pin(link.request(ask(2)));
    assert!((&mut open).now_or_never().is_none());
    // A late answer to an old request is none of them.
    for id in ["0", "0", "\"x\"", "1", "99", "100", "null"] {
        server.write_all(result(id).as_bytes()).await.unwrap();
    }
    let waits = tokio::time::timeout(Duration::from_secs(60), open).await;
    assert!(waits.is_err(), "nothing answers it");
    assert_eq!(
        inbox.requests.describe_start().unwrap(),
        "answers with id 0, \"x\", 99 came, which match no request, and it sent a line or event that is no \
         message: [secret T]"
    );
}

#[test]
fn the_stderr_tail_is_bounded() {
    let mut words = StderrTail::default();
    for n in 0..100 {
        words.push(format!("line {n}"));
    }
    assert_eq!(words.0.len(), MAX_STDERR_TAIL_LINES);
    assert!(
        words.to_line().starts_with("line 90 | ") && words.to_line().ends_with(" | line 99"),
        "{words:?}"
    );
    for n in 0..9 {
        words.push(format!("{n}{}", "x".repeat(MAX_LOG_LINE - 1)));
    }
    assert_eq!(words.to_line(), words.0[9], "only the newest line fits");
}

/// Long texts of a server: an answer, one that needs a repair, and texts that cannot be read. Without optimization,
/// each of the last three takes half a second.
pub(in super::super) fn long_texts() -> impl Iterator<Item = String> {
    const BYTES: usize = MAX_MESSAGE_BYTES / 6;
    let start = r#"{"jsonrpc":"2.0","id":1,"result":["#;
    let texts = [
        (start, "\"\\n\\u00e9\",", "1]}"),
        (start, "NaN,", "1]}"),
        (start, "{\"id\":1},", "undefined]}"),
        (start, "{'id':1},", "1"),
    ];
    texts.into_iter().map(|(start, part, end)| {
        let room = BYTES - start.len() - end.len();
        [start, &part.repeat(room / part.len()), end].concat()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn reading_a_long_line_delays_no_call() {
    for text in long_texts() {
        let (link, _inbox, mut server) = pipe_link();
        // Both are tasks of the one worker.
        let reading = tokio::spawn(async move {
            let writing = async {
                server.write_all(text.as_bytes()).await.ok();
                server.write_all(b"\n").await.ok();
                drop(server);
                text
            };
            tokio::join!(link.request(ask(1)), writing).1
        });
        let (text, delay) = tokio::spawn(canary::run_beside(reading, async || ())).await.unwrap();
        assert!(delay <= canary::MAX_DELAY, "{delay:?}: {}", &text[..80]);
    }
}
