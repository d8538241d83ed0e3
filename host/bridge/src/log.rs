//! Warnings of the host for the log of the language: a full cache, a disk that cannot be written, a server that is gone.
//!
//! `tracing` has one subscriber in a process. A program in Rust that has set its own keeps it.

use std::fmt;
use std::sync::{Arc, Once, Weak};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};

use crate::event::Event;
use crate::mailbox::Mailbox;

/// The start of the targets that are forwarded: all crates of the project.
const TARGET: &str = "toolbay";

/// The mailboxes that opened hosts. The newest that lives gets the warnings.
static RECEIVERS: Mutex<Vec<Weak<Mailbox>>> = Mutex::new(Vec::new());

/// Sends later warnings to a mailbox.
pub(crate) fn forward_to(mailbox: &Arc<Mailbox>) {
    static INSTALL: Once = Once::new();
    // An error means that the program has a subscriber.
    INSTALL.call_once(|| drop(tracing::subscriber::set_global_default(LogForwarder)));
    let mut receivers = RECEIVERS.lock();
    receivers.retain(|one| one.strong_count() > 0 && !std::ptr::eq(one.as_ptr(), Arc::as_ptr(mailbox)));
    receivers.push(Arc::downgrade(mailbox));
}

#[derive(Debug)]
struct LogForwarder;

impl Subscriber for LogForwarder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.target().starts_with(TARGET)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let receiver = RECEIVERS.lock().iter().rev().find_map(Weak::upgrade);
        let Some(mailbox) = receiver else { return };
        let mut text = LogText::default();
        event.record(&mut text);
        let is_error = *event.metadata().level() == Level::ERROR;
        let message = &format!("{}{}", text.message, text.fields);
        mailbox.push(&Event::Log { level: if is_error { "error" } else { "warning" }, message });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The message of an event, and its fields after it.
#[derive(Default)]
struct LogText {
    message: String,
    fields: String,
}

impl Visit for LogText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.fields.push_str(&format!(", {}: {value:?}", field.name()));
        }
    }
}
