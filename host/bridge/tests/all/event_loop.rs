//! An event loop that drains one mailbox.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Value, json};
use toolbay_bridge::{Bridge, BridgeError};

/// The program `toolbay` that the workspace built.
pub(crate) fn executable() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().with_file_name("toolbay");
    assert!(program.is_file(), "build the program first: cargo build --package toolbay-cli");
    program
}

pub(crate) struct EventLoop {
    pub(crate) bridge: Arc<Bridge>,
    pub(crate) mailbox: u64,
    socket: OwnedFd,
    events: VecDeque<Value>,
}

impl EventLoop {
    pub(crate) fn new(bridge: &Arc<Bridge>) -> Self {
        let opened = bridge.open_mailbox().unwrap();
        Self {
            bridge: Arc::clone(bridge),
            mailbox: opened.id,
            socket: opened.socket,
            events: VecDeque::new(),
        }
    }

    pub(crate) fn submit(&self, request: &Value) -> Result<u64, BridgeError> {
        self.bridge.submit(self.mailbox, &request.to_string(), Vec::new())
    }

    pub(crate) fn reply(&self, event: &Value, reply: &Value) {
        self.bridge.reply(self.mailbox, event["id"].as_u64().unwrap(), &reply.to_string()).unwrap();
    }

    /// The next event, once there is one.
    pub(crate) fn next(&mut self) -> Value {
        while self.events.is_empty() {
            poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], None).unwrap();
            let delivery: Value = serde_json::from_str(&self.bridge.drain(self.mailbox).unwrap()).unwrap();
            let events = delivery["events"].as_array().unwrap().iter();
            self.events.extend(events.filter(|event| event["event"] != "log").cloned());
        }
        self.events.pop_front().unwrap()
    }

    /// The next event, which must be of this kind.
    pub(crate) fn expect(&mut self, kind: &str) -> Value {
        let event = self.next();
        assert_eq!(event["event"], kind, "{event}");
        event
    }

    /// Submits a request, and returns its answer.
    pub(crate) fn ask(&mut self, request: &Value) -> Value {
        let id = self.submit(request).unwrap();
        let event = self.next();
        assert_eq!(event["id"], id, "{event}");
        event
    }

    pub(crate) fn query(&self, request: &Value) -> Value {
        serde_json::from_str(&self.bridge.query(&request.to_string(), "").unwrap()).unwrap()
    }

    /// Opens a host that grants nothing, with further settings.
    pub(crate) fn open(&mut self, folder: &Path, settings: Value) -> u64 {
        let id = self.begin_opening(folder, settings);
        let opened = self.next();
        assert_eq!(opened["id"], id, "{opened}");
        opened["value"].as_u64().unwrap_or_else(|| panic!("{opened}"))
    }

    pub(crate) fn begin_opening(&self, folder: &Path, settings: Value) -> u64 {
        let mut request = json!({
            "op": "open", "executable": executable(), "policy": {"base": folder},
        });
        let Value::Object(settings) = settings else { panic!("settings are an object") };
        request.as_object_mut().unwrap().extend(settings);
        self.submit(&request).unwrap()
    }

    pub(crate) fn view(&self, host: u64) -> u64 {
        self.query(&json!({"op": "view", "host": host, "filter": {}})).as_u64().unwrap()
    }

    /// Registers a tool that takes any arguments.
    pub(crate) fn register(&self, host: u64, tool: Value) {
        let mut request = json!({"description": "A tool.", "input_schema": {"type": "object"}});
        let Value::Object(tool) = tool else { panic!("a tool is an object") };
        request.as_object_mut().unwrap().extend(tool);
        drop(self.query(&json!({"op": "register", "host": host, "tools": [request]})));
    }

    /// Begins calls of one tool, each with its arguments.
    pub(crate) fn call(&self, host: u64, tool: &str, args: &[&str], settings: Value) -> u64 {
        let call = |(id, args): (usize, &&str)| json!({"id": id.to_string(), "tool": tool, "args": args});
        let calls: Vec<Value> = args.iter().enumerate().map(call).collect();
        let mut request = json!({"op": "call_all", "host": host, "view": self.view(host), "calls": calls});
        let Value::Object(settings) = settings else { panic!("settings are an object") };
        request.as_object_mut().unwrap().extend(settings);
        self.submit(&request).unwrap()
    }
}
