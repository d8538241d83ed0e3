//! Warnings of the host for the log of the language: a full cache, a disk that cannot be written, a server that is gone.
//!
//! `tracing` has one subscriber in a process. A program in Rust that has set its own keeps it.

use std::fmt;
use std::sync::{Arc, Once, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use toolbay::{LoadEvent, LoadListener};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};

use crate::event::Event;
use crate::mailbox::Mailbox;

/// The start of the targets that are forwarded: all crates of the project.
const TARGET: &str = "toolbay";

/// After this time, a program that waits for compiled plugins seems to hang.
const NOTICEABLE: Duration = Duration::from_secs(2);

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

/// The plugins that are being compiled.
#[derive(Default)]
struct Compilations {
    names: Vec<String>,
    /// The task that says so. It ends with the last compilation.
    notice: Option<AbortHandle>,
}

/// Warns once when plugins have been compiled for a while.
pub(crate) fn compile_listener(runtime: Handle) -> LoadListener {
    let state = Arc::new(Mutex::new(Compilations::default()));
    Arc::new(move |event| {
        let mut compilations = state.lock();
        match event {
            LoadEvent::Compiling { plugin, .. } => {
                compilations.names.push(plugin.to_string());
                let waiting = Arc::clone(&state);
                let notice = || runtime.spawn(give_notice(waiting)).abort_handle();
                compilations.notice.get_or_insert_with(notice);
            }
            LoadEvent::Compiled { plugin, .. } => {
                let ended = compilations.names.iter().position(|name| name == plugin.as_str());
                if let Some(place) = ended {
                    compilations.names.swap_remove(place);
                }
                if compilations.names.is_empty()
                    && let Some(notice) = compilations.notice.take()
                {
                    notice.abort();
                }
            }
        }
    })
}

async fn give_notice(compilations: Arc<Mutex<Compilations>>) {
    tokio::time::sleep(NOTICEABLE).await;
    let names = compilations.lock().names.join("`, `");
    tracing::warn!(
        "`{names}` is being compiled, which takes a while; later starts take the code from the cache"
    );
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

#[cfg(test)]
mod tests {
    use toolbay::PluginId;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn plugins_that_compile_for_long_are_named_once() {
        let mailbox = Arc::new(Mailbox::new().unwrap());
        forward_to(&mailbox);
        let listener = compile_listener(Handle::current());
        let [fast, slow] = ["fast", "slow"].map(|name| PluginId::new(name).unwrap());
        let ended = |plugin| listener(LoadEvent::Compiled { plugin, elapsed: Duration::ZERO });
        for plugin in [&fast, &slow] {
            listener(LoadEvent::Compiling { plugin, bytes: 1 });
        }
        ended(&fast);
        tokio::time::sleep(10 * NOTICEABLE).await;
        ended(&slow);
        listener(LoadEvent::Compiling { plugin: &fast, bytes: 1 });
        ended(&fast);
        tokio::time::sleep(10 * NOTICEABLE).await;
        let events: serde_json::Value = serde_json::from_str(&mailbox.drain()).unwrap();
        let logged: Vec<&str> = events["events"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|event| event["message"].as_str())
            .collect();
        assert!(matches!(*logged, [one] if one.contains("`slow`")), "{logged:?}");
    }
}
