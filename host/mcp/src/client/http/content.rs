//! What the texts of a server over HTTP are: a body, or an event of a stream. A text can be long, so reading it is a function of
//! the text alone, which can run on any thread.

use super::super::link_request::quote;
use crate::protocol::message::{self, ResponseId, RpcMessage, RpcResult};
use crate::protocol::repair::RepairedResponse;
use crate::protocol::unreadable::{self, UnreadableResponse};

/// What the body of a response is for the request with an id.
pub(super) enum BodyContent {
    Response(RpcResult),
    Repaired(RepairedResponse),
    /// JSON that does not have the response, or cannot be read: what is wrong, and how it begins.
    Unreadable(String),
    /// How it begins.
    NoJson(String),
}

impl BodyContent {
    /// Reads a body. Some servers send JSON under another media type.
    pub(super) fn read(id: u64, body: &[u8], is_declared: bool) -> Self {
        let messages = message::parse_messages(body);
        let text = message::without_byte_order_mark(body).trim_ascii_start();
        if !is_declared && messages.is_none() && !text.starts_with(b"{") {
            return Self::NoJson(quote(body));
        }
        let Some(messages) = messages else {
            return match RepairedResponse::find(body).filter(|repaired| repaired.id == id) {
                Some(repaired) => Self::Repaired(repaired),
                None => Self::Unreadable(format!("{}{}", unreadable::describe(body), quote(body))),
            };
        };
        let mut problem = String::new();
        for message in messages {
            match message {
                RpcMessage::Response { id: of, result } if answers(id, &of, &result) => {
                    return Self::Response(result);
                }
                RpcMessage::Response { id: of, .. } => problem = format!("its id is {of}, not {id}"),
                RpcMessage::Request(_) | RpcMessage::Notification { .. } => {}
            }
        }
        Self::Unreadable(format!("{problem}{}", quote(body)))
    }
}

/// What an event of a stream is.
pub(super) enum EventContent {
    Messages(Vec<RpcMessage>),
    /// The response to the request of the stream.
    Repaired(RepairedResponse),
    /// The event, and the response that it seems to be.
    Unreadable(Vec<u8>, Option<UnreadableResponse>),
}

impl EventContent {
    /// Reads an event of the stream of a request, if it is one.
    pub(super) fn read(id: Option<u64>, event: Vec<u8>) -> Self {
        if let Some(messages) = message::parse_messages(&event) {
            return Self::Messages(messages);
        }
        if let Some(id) = id
            && let Some(repaired) = RepairedResponse::find(&event).filter(|repaired| repaired.id == id)
        {
            return Self::Repaired(repaired);
        }
        let found = UnreadableResponse::find(&event).or_else(|| UnreadableResponse::find_anywhere(&event));
        Self::Unreadable(event, found)
    }
}

/// About how many steps it takes to read a text.
pub(super) fn reading_steps(text: &[u8]) -> u64 {
    text.len() as u64
}

/// Whether a response belongs to the request whose HTTP response carries it. An error with an id that no request has is
/// that of a request that the server could not read: none, `0`, `"server-error"`.
pub(super) fn answers(id: u64, of: &ResponseId, result: &RpcResult) -> bool {
    of.number() == Some(id) || (result.is_err() && of.number().is_none_or(|number| number == 0))
}
