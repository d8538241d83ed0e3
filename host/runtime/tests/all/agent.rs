//! The agent of `examples/agent.rs`, against a model server with a script.

#[path = "../../examples/agent.rs"]
#[allow(dead_code, reason = "the test has its own `main`")]
mod example;

use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use toolbay::serde_json::{self, Value, json};
use toolbay::vendor::Vendor;
use toolbay::{
    ApprovalReply, ApprovalRequest, Approver, BoxFuture, Filter, Host, Policy, ProgressEvent, ProgressSink,
    Session, TurnContext,
};

use self::example::{Model, answer, send_note};

/// A model server that gives these answers, one for each connection. Returns its address and the requests.
async fn scripted(answers: Vec<Value>) -> (String, Arc<Mutex<Vec<(String, Value)>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let requests = Arc::<Mutex<Vec<(String, Value)>>>::default();
    let seen = Arc::clone(&requests);
    // Ends with the script.
    tokio::spawn(async move {
        for answer in answers {
            let mut stream = BufReader::new(listener.accept().await.unwrap().0);
            let (mut head, mut line) = (Vec::new(), String::new());
            while stream.read_line(&mut line).await.unwrap() > 2 {
                head.push(std::mem::take(&mut line).to_lowercase());
            }
            let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            let mut body = vec![0; length.trim().parse().unwrap()];
            stream.read_exact(&mut body).await.unwrap();
            let path = head[0].split(' ').nth(1).unwrap().to_owned();
            seen.lock().unwrap().push((path, serde_json::from_slice(&body).unwrap()));
            let text = answer.to_string();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", text.len());
            stream.write_all(format!("{head}{text}").as_bytes()).await.unwrap();
        }
    });
    (address, requests)
}

/// Answers of a user, and what the user sees.
#[derive(Debug, Default)]
struct FakeUser {
    refuses: bool,
    asked: Mutex<Vec<ApprovalRequest>>,
    progress: Mutex<Vec<String>>,
}

impl Approver for FakeUser {
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalReply> {
        self.asked.lock().unwrap().push(request.clone());
        let reply =
            if self.refuses { ApprovalReply::No(Some("not now".to_owned())) } else { ApprovalReply::Yes };
        Box::pin(std::future::ready(reply))
    }
}

impl ProgressSink for FakeUser {
    fn progress(&self, event: ProgressEvent) {
        self.progress.lock().unwrap().push(event.message);
    }
}

async fn converse(
    vendor: Vendor,
    user: &Arc<FakeUser>,
    answers: Vec<Value>,
) -> (String, Vec<(String, Value)>) {
    let plugins = tempfile::tempdir().unwrap();
    let builder = Host::builder(Policy::deny_all(Path::new("/"))).approver(Arc::clone(user) as _);
    let host = builder.start(plugins.path()).await.unwrap();
    host.register(send_note::tool().unwrap()).unwrap();
    let session = Arc::new(Session::with_random_key());
    let progress = Some(Arc::clone(user) as _);
    let turn = TurnContext { session: Arc::clone(&session), progress, ..TurnContext::default() };
    let (server, requests) = scripted(answers).await;
    let model = Model { vendor, server, name: "scripted".to_owned() };
    let filter = Arc::new(Filter::default());
    let text = answer(&host, &model, &filter, &turn, "Tell the team that I am late.").await.unwrap();
    assert_eq!(session.calls(), 2, "all calls belong to one session");
    host.close().await;
    let requests = requests.lock().unwrap().clone();
    (text, requests)
}

#[tokio::test]
async fn a_model_of_openai_calls_tools_until_it_answers() {
    let user = Arc::new(FakeUser::default());
    let call = |id: &str, name: &str, args: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": args}});
    let calls = [call("a", "send_note", r#"{"text": "I am late."}"#), call("b", "no_such_tool", "{}")];
    let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
    let answers = vec![
        json!({"choices": [{"message": message}]}),
        json!({"choices": [{"message": {"role": "assistant", "content": "Done."}}]}),
    ];
    let (text, requests) = converse(Vendor::OpenaiChat, &user, answers).await;
    assert_eq!(text, "Done.");
    let [(path, first), (_, second)] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(path, "/v1/chat/completions");
    assert_eq!(first["tools"][1]["function"]["name"], "send_note", "after `read_output`");
    assert_eq!(first["messages"], json!([{"role": "user", "content": "Tell the team that I am late."}]));
    assert_eq!(second["messages"][1], message);
    assert_eq!(second["messages"][2]["content"], "sent 10 characters");
    let refused = second["messages"][3]["content"].as_str().unwrap();
    assert!(refused.contains("Unknown tool: no_such_tool"), "{refused}");
    assert_eq!(*user.progress.lock().unwrap(), ["sending the note"]);
    let asked = user.asked.lock().unwrap();
    assert_eq!((asked[0].tool.as_str(), &*asked[0].args), ("send_note", &json!({"text": "I am late."})));
}

#[tokio::test]
async fn a_model_of_anthropic_reads_what_a_person_refused() {
    let user = Arc::new(FakeUser { refuses: true, ..FakeUser::default() });
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "send_note", "input": {"text": id}});
    let content = json!([{"type": "text", "text": "I try."}, call("a"), call("b")]);
    let answers = vec![
        json!({"role": "assistant", "content": content, "stop_reason": "tool_use"}),
        json!({"role": "assistant", "content": [{"type": "text", "text": "It was "}, {"type": "text", "text": "refused."}]}),
    ];
    let (text, requests) = converse(Vendor::Anthropic, &user, answers).await;
    assert_eq!(text, "It was refused.");
    let [(path, first), (_, second)] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(path, "/v1/messages");
    assert_eq!(first["tools"][1]["input_schema"]["properties"]["text"]["maxLength"], 2000);
    assert_eq!(second["messages"][1], json!({"role": "assistant", "content": content}));
    let results = second["messages"][2]["content"].as_array().unwrap();
    assert_eq!(
        (results.len(), &results[0]["is_error"], &results[1]["tool_use_id"]),
        (2, &json!(true), &json!("b"))
    );
    assert!(results[0].to_string().contains("not now"), "{}", results[0]);
    assert!(user.progress.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_agent_sees_its_profile_and_a_cancelled_turn_asks_no_model() {
    let folder = tempfile::tempdir().unwrap();
    let text = "version = 1\n[profile.agent]\nexclude_tools = [\"send_note\"]";
    let policy = Policy::parse(text, folder.path(), None).unwrap();
    let host = Host::builder(policy).start(folder.path()).await.unwrap();
    host.register(send_note::tool().unwrap()).unwrap();
    let filter = Arc::new(Filter::for_profile(host.policy().profile("agent").cloned()));
    let said = json!({"choices": [{"message": {"role": "assistant", "content": "Hello."}}]});
    // The second answer is for a request that must not come.
    let (server, requests) = scripted(vec![said.clone(), said]).await;
    let model = Model { vendor: Vendor::OpenaiChat, server, name: "scripted".to_owned() };
    let turn = TurnContext::default();
    assert_eq!(answer(&host, &model, &filter, &turn, "Hello?").await.unwrap(), "Hello.");
    let sent = requests.lock().unwrap()[0].1.to_string();
    assert!(sent.contains("read_output") && !sent.contains("send_note"), "{sent}");
    turn.cancel.cancel();
    let error = answer(&host, &model, &filter, &turn, "Hello?").await.unwrap_err().to_string();
    assert_eq!(error, "the turn was cancelled");
    assert_eq!(requests.lock().unwrap().len(), 1, "a cancelled turn asks no model");
    host.close().await;
}
