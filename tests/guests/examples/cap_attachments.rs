//! Attachments through `toolbay:plugin/attachments`. A refusal of the host is a normal result.

use guest::host::attachments::{self, Attachment, AttachmentError};
use guest::types::{BlockBody, ContentBlock, ResourceLink};
use guest::{Answer, Args, ToolOutput, Value, json, output, structured, tool};

const ALL: &[(&str, &str, bool)] = &[("attachments", "read", true), ("attachments", "create", true)];

guest::tools!(
    tool("all", all).needs(ALL),
    tool("read", read).needs(ALL),
    tool("create", create).needs(ALL),
    // Creates `times` attachments of `bytes` each. Returns how many were created, and the error that ended it.
    tool("flood", flood).needs(ALL),
    tool("images", read).needs(&[("attachments", "read image/*", true)]),
    tool("undeclared_all", all),
    tool("undeclared_read", read),
    tool("undeclared_create", create),
    // Returns a link to the attachment that it created.
    tool("link", link).needs(ALL),
);

fn all(_: &Args) -> Answer {
    let all: Vec<Value> = attachments::all().iter().map(shown).collect();
    structured(&json!({ "all": all }))
}

fn read(args: &Args) -> Answer {
    said(attachments::read(args.text("id", "")).map(|data| {
        if data.len() > 1000 {
            json!({ "bytes": data.len() })
        } else {
            json!({ "text": String::from_utf8_lossy(&data) })
        }
    }))
}

fn data(args: &Args) -> Vec<u8> {
    match args.number("bytes", 0) {
        0 => args.text("text", "").as_bytes().to_vec(),
        bytes => vec![b'x'; bytes as usize],
    }
}

fn create(args: &Args) -> Answer {
    let name = match args.number("name_bytes", 0) {
        0 => args.text("name", "new.txt").to_owned(),
        bytes => "n".repeat(bytes as usize),
    };
    let made = attachments::create(&name, args.text("media", "text/plain"), &data(args));
    said(made.map(|made| shown(&made)))
}

fn flood(args: &Args) -> Answer {
    let mut made = 0;
    for _ in 0..args.number("times", 1) {
        match attachments::create("flood.txt", "text/plain", &data(args)) {
            Ok(_) => made += 1,
            Err(error) => return structured(&json!({ "made": made, "end": refused(error) })),
        }
    }
    structured(&json!({ "made": made }))
}

fn link(args: &Args) -> Answer {
    let made = match attachments::create("linked.txt", "text/plain", &data(args)) {
        Ok(made) => made,
        Err(error) => return structured(&refused(error)),
    };
    let uri = format!("attachment:{}", made.id);
    let body = BlockBody::Link(ResourceLink {
        uri: uri.clone(),
        name: made.name,
        title: None,
        description: None,
        mime_type: Some(made.mime_type),
        size: Some(made.size),
    });
    Ok(ToolOutput { content: vec![ContentBlock { body, annotations: None }], ..output(uri) })
}

fn shown(one: &Attachment) -> Value {
    json!({ "id": one.id, "name": one.name, "media": one.mime_type, "size": one.size })
}

fn said(result: Result<Value, AttachmentError>) -> Answer {
    structured(&result.unwrap_or_else(refused))
}

fn refused(error: AttachmentError) -> Value {
    match error {
        AttachmentError::Denied(message) => json!({ "error": "denied", "message": message }),
        AttachmentError::NotFound => json!({ "error": "not-found" }),
        AttachmentError::TooLarge(size) => json!({ "error": "too-large", "size": size }),
        AttachmentError::Other(message) => json!({ "error": "other", "message": message }),
    }
}
