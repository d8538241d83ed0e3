//! Everything that a bridged server can make us do has a number, and it is here.

use std::time::Duration;

/// Bytes of one stream of events that answers a request.
pub(super) const MAX_STREAM: usize = 64 << 20;
/// Bytes of one tool of a list, with all that stands in it; a larger one is left out.
pub(super) const MAX_TOOL_BYTES: usize = 1 << 20;
/// Bytes of what a server claims of a tool (`annotations`).
pub(super) const MAX_CLAIMS: usize = 16 << 10;
/// Values of all schemas of one list, the inner ones included: a hundred and fifty megabytes of trees, at worst.
pub(super) const MAX_LIST_VALUES: usize = 2_000_000;
/// Bytes of what a server says of itself when a conversation begins.
pub(super) const MAX_HELLO: usize = 256 << 10;
/// Bytes of one question of a server, with its form.
pub(super) const MAX_QUESTION: usize = 64 << 10;
/// Bytes of the state that a server wants back with the answers to its questions.
pub(super) const MAX_REQUEST_STATE: usize = 256 << 10;
/// Tools of one server that are taken; more would fill no model's list.
pub(super) const MAX_TOOLS: usize = 5_000;
/// Resources of one server that are listed, and as many templates.
pub(super) const MAX_RESOURCES: usize = 1_000;
/// Bytes of one resource of a list, with all that stands in it; a larger one is left out.
pub(super) const MAX_RESOURCE_ITEM: usize = 64 << 10;
/// Parts of one resource that is read.
pub(super) const MAX_CONTENTS: usize = 100;
/// Bytes of one resource that is read, as they come.
pub(super) const MAX_RESOURCE_BYTES: usize = 8 << 20;
/// Bytes of a server's list that is kept between two starts; a longer one is not.
pub(super) const MAX_KEPT_LIST: usize = 8 << 20;
/// How long the kept list of a server is waited for before the server is started.
pub(super) const RECALL_WAIT: Duration = Duration::from_secs(1);
/// Pages of one list.
pub(super) const MAX_PAGES: usize = 500;
/// Bytes of all pages of one list.
pub(super) const MAX_LIST_BYTES: usize = 32 << 20;
/// Longest cursor, in bytes.
pub(super) const MAX_CURSOR: usize = 4 << 10;
/// Longest description of a tool, in characters: the longest of known servers have two thousand.
pub(super) const MAX_DESCRIPTION: usize = 8_000;
/// Longest title, version or name of a server, in characters.
pub(super) const MAX_LABEL: usize = 100;
/// Requests of one server that are under way at once.
pub(super) const MAX_IN_FLIGHT: usize = 64;
/// Requests of one server that wait for a place; one more is answered `busy`.
pub(super) const MAX_QUEUED: usize = 256;
/// Messages that wait to be written to a server that does not read.
pub(super) const OUTBOX: usize = 128;
/// Lines or events of one connection that are no message; then it is closed. Banners and log lines on stdout are common.
pub(super) const MAX_GARBAGE: usize = 1_000;
/// Answers of one connection to questions that nobody asked; then it is closed. Answers to requests that were given up
/// are among them.
pub(super) const MAX_STRAY: usize = 10_000;
/// Notifications and requests of a server within [`FLOOD_WINDOW`]; then the connection is closed.
pub(super) const MAX_UNASKED: u32 = 20_000;
/// See [`MAX_UNASKED`].
pub(super) const FLOOD_WINDOW: Duration = Duration::from_secs(10);
/// Bytes of what a server says unasked within [`FLOOD_WINDOW`]; then the connection is closed.
pub(super) const MAX_UNASKED_BYTES: usize = 64 << 20;
/// As how many of these bytes a line counts, however short.
pub(super) const LINE_WEIGHT: usize = 64;
/// Questions of a server to a person that are open at once.
pub(super) const MAX_QUESTIONS: usize = 4;
/// Rounds of one call in which a server asks for more input.
pub(super) const MAX_ROUNDS: usize = 8;
/// Questions of one round.
pub(super) const MAX_INPUTS: usize = 16;
/// Progress events of one call that are passed on.
pub(super) const MAX_PROGRESS_EVENTS: u32 = 1_000;
/// The least time between two of them.
pub(super) const PROGRESS_PAUSE: Duration = Duration::from_millis(50);
/// How often the answer to one request is fetched again after its stream broke off.
pub(super) const MAX_RESUMES: usize = 8;
/// How long to wait before that, where the server says nothing.
pub(super) const RESUME_PAUSE: Duration = Duration::from_secs(1);
/// How long a server that may know no 2026-07-28 has to say so, before the older handshake is tried.
pub(super) const DISCOVER_WAIT: Duration = Duration::from_secs(5);
/// How long after a change of the list it is read again, and the least time between two reads; doubles while it keeps
/// changing.
pub(super) const REFRESH_PAUSE: Duration = Duration::from_millis(500);
/// The longest such pause.
pub(super) const MAX_REFRESH_PAUSE: Duration = Duration::from_secs(60);
/// The first pause before a server is started again; doubles with each failure.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// The longest such pause.
pub(super) const MAX_RETRY_PAUSE: Duration = Duration::from_secs(60);
/// Failures in a row after which a server is left alone for [`BREAK_PAUSE`].
pub(super) const BREAK_AFTER: u32 = 8;
/// See [`BREAK_AFTER`].
pub(super) const BREAK_PAUSE: Duration = Duration::from_secs(300);
/// How long a connection must have held for the failures before it to be forgotten.
pub(super) const STABLE: Duration = Duration::from_secs(30);
/// Calls in a row that took too long, with nothing heard in between, after which a server counts as hung.
pub(super) const HUNG_AFTER: u32 = 3;
/// How long a server has to end by itself when its stdin is closed.
pub(super) const END_GRACE: Duration = Duration::from_secs(1);
/// How long the farewell to a server may take.
pub(super) const FAREWELL: Duration = Duration::from_secs(2);
/// How long a server behind a URL may take to hear that a call was given up, or the answer to a question of its own.
pub(super) const TELL_WAIT: Duration = Duration::from_secs(10);
/// The first pause before a stream of what a server says by itself is opened again; doubles while it does not hold.
pub(super) const EAR_PAUSE: Duration = Duration::from_secs(1);
/// The longest such pause.
pub(super) const MAX_EAR_PAUSE: Duration = Duration::from_secs(60);
/// Longest line of a server's stderr in the log, in characters.
pub(super) const MAX_LOG_LINE: usize = 500;
/// Last lines of a server's stderr that are reported when it ends.
pub(super) const MAX_LAST_LINES: usize = 10;
/// Characters of all of them; the oldest lines go first.
pub(super) const MAX_LAST_WORDS: usize = 800;
/// Lines of a server's stderr a minute in the log.
pub(super) const MAX_LOG_LINES: u32 = 200;
/// Longest text of a server in a message of ours, in characters, once values of secrets were taken out of it.
pub(super) const MAX_SAID: usize = 1_000;
/// Bytes of all responses of one server that are being read.
pub(super) const MAX_HELD: usize = 256 << 20;
/// Bytes of a response with an error status that are read.
pub(super) const MAX_ERROR_BODY: usize = 64 << 10;
/// Problems of one server that are kept to be shown.
pub(super) const MAX_PROBLEMS: usize = 50;
