//! The frame of all pages, and the parts that several pages share.

use std::time::{Duration, SystemTime};

use axum::extract::Request;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use axum::http::header::{LOCATION, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, SecondsFormat, Utc};
use maud::{DOCTYPE, Markup, html};
use serde::Deserialize;
use toolbay_policy::hidden_chars::escape_hidden;

use crate::api::NO_REASON;
use crate::control::ServerControl;
use crate::gate::AdminGate;
use crate::operator::Operator;
use crate::paths;
use crate::tokens::Role;

/// Longest text of a guest or caller in a page, in characters.
const MAX_TEXT: usize = 4000;
/// Own script, style and requests only; no frames, no plugins, no other base for links.
const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                   form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// The tabs: path, name.
const TABS: [(&str, &str); 7] = [
    ("/", "Now"),
    ("/calls", "Calls"),
    ("/refused", "Refused"),
    ("/pending", "Pending"),
    ("/plugins", "Plugins"),
    ("/tools", "Tools"),
    ("/budgets", "Budgets"),
];

/// Adds the headers that keep a browser from doing anything else with a response.
pub(crate) async fn security_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let fixed = [
        (CONTENT_SECURITY_POLICY, CSP),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        // Not `no-referrer`: with it, browsers send `Origin: null` with forms.
        (REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// What the frame of a page shows.
pub(super) struct PageFrame<'a> {
    control: &'a ServerControl,
    operator: &'a Operator,
    /// The path of the tab.
    tab: &'static str,
}

impl<'a> PageFrame<'a> {
    pub(super) fn new(gate: &'a AdminGate, operator: &'a Operator, tab: &'static str) -> Self {
        Self { control: &gate.control, operator, tab }
    }

    /// Whether the operator may act.
    pub(super) fn may_act(&self) -> bool {
        self.operator.role == Role::Operate
    }

    /// A page.
    pub(super) fn page(&self, title: &str, body: &Markup) -> Response {
        self.page_with(StatusCode::OK, title, body)
    }

    pub(super) fn page_with(&self, status: StatusCode, title: &str, body: &Markup) -> Response {
        let info = self.control.info();
        let page = html! {
            header {
                a.skip href="#main" { "Skip to content" }
                nav aria-label="Views" {
                    @for (path, name) in TABS {
                        a href=(path) aria-current=[(path == self.tab).then_some("page")] {
                            (name)
                            @if path == "/pending" { (self.waiting()) }
                        }
                    }
                }
                form method="post" action=(paths::SIGN_OUT) {
                    span.quiet { (self.operator.name) }
                    button { "Sign out" }
                }
            }
            div #stopped data-refresh {
                @if let Some(reason) = &info.stopped {
                    p.alarm role="alert" { strong { "All calls are stopped: " } (plain(reason)) }
                }
            }
            main #main { h1 { (plain(title)) } (body) }
            footer {
                "Toolbay " (info.version) ", process " (info.pid) ", since " (info.since)
                p #status.quiet role="status" {}
            }
        };
        document(status, title, &page)
    }

    /// A page that says why an action was not done, with a link to go on.
    pub(super) fn not_done(
        &self,
        status: StatusCode,
        title: &str,
        problem: &str,
        (to, label): (&str, &str),
    ) -> Response {
        let body = html! { p.alarm role="alert" { (plain(problem)) } p { a href=(to) { (label) } } };
        self.page_with(status, title, &body)
    }

    /// The number of questions and plugins that wait, for the tab.
    fn waiting(&self) -> Markup {
        let count = self.control.count_waiting();
        html! { span #waiting.count data-refresh { @if count > 0 { " (" (count) ")" } } }
    }

    /// A button that acts; nothing for a person who may not.
    pub(super) fn action(&self, path: &str, label: &str, class: &str) -> Markup {
        html! { @if self.may_act() { form.inline method="post" action=(path) { button class=(class) { (label) } } } }
    }
}

/// A form with the reason of an operator.
#[derive(Deserialize)]
pub(super) struct ReasonForm {
    #[serde(default)]
    reason: String,
}

impl ReasonForm {
    /// The reason; `None` if the operator gave none.
    pub(super) fn reason(&self) -> Option<&str> {
        Some(self.reason.trim()).filter(|reason| !reason.is_empty())
    }

    /// The reason, or else a text that says that there is none.
    pub(super) fn reason_or_none(&self) -> String {
        self.reason().unwrap_or(NO_REASON).to_owned()
    }
}

/// A page without the frame: nobody is signed in.
pub(super) fn bare(status: StatusCode, title: &str, body: &Markup) -> Response {
    document(status, title, &html! { main #main { h1 { (title) } (body) } })
}

fn document(status: StatusCode, title: &str, body: &Markup) -> Response {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (plain(title)) " – Toolbay" }
                link rel="stylesheet" href=(paths::STYLE);
                link rel="icon" href=(paths::ICON);
                script type="module" src=(paths::SCRIPT) {}
            }
            body { (body) }
        }
    };
    (status, [(CONTENT_TYPE, "text/html; charset=utf-8")], page.into_string()).into_response()
}

/// Sends the browser to a page after an action, so that a reload does not repeat it.
pub(super) fn redirect(to: &str) -> Response {
    let Ok(to) = HeaderValue::from_str(to) else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    (StatusCode::SEE_OTHER, [(LOCATION, to)]).into_response()
}

/// A text of anybody: cut, with hidden characters escaped.
pub(super) fn plain(text: &str) -> String {
    plain_up_to(text, MAX_TEXT)
}

pub(super) fn plain_up_to(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => escape_hidden(text).into_owned(),
        Some((end, _)) => {
            let rest = text.get(end..).map_or(0, |rest| rest.chars().count());
            let head = text.get(..end).unwrap_or_default();
            format!("{}… ({rest} more characters)", escape_hidden(head))
        }
    }
}

/// A part of a path.
pub(super) fn path_part(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// A point in time.
pub(super) fn time(at: SystemTime) -> Markup {
    let at = DateTime::<Utc>::from(at);
    html! { time datetime=(at.to_rfc3339_opts(SecondsFormat::Millis, true)) { (at.format("%H:%M:%S")) } }
}

/// A duration.
pub(super) fn duration(time: Duration) -> String {
    match time.as_micros() {
        0..1_000 => format!("{} µs", time.as_micros()),
        1_000..1_000_000 => format!("{} ms", time.as_millis()),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

/// A size in bytes.
pub(super) fn size(bytes: u64) -> String {
    toolbay_policy::quantity::show_bytes(bytes)
}

/// A table that scrolls on a narrow screen.
pub(super) fn table(label: &str, columns: &[&str], rows: &Markup) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(label) { table {
            thead { tr { @for column in columns { th scope="col" { (column) } } } }
            tbody { (rows) }
        } }
    }
}

/// Keys with their values.
pub(super) fn facts(rows: &[(&str, Markup)]) -> Markup {
    html! { dl { @for (key, value) in rows { div { dt { (key) } dd { (value) } } } } }
}

/// A text for a fact.
pub(super) fn fact(text: impl AsRef<str>) -> Markup {
    html! { (plain(text.as_ref())) }
}
