//! The limits on everything that a bridged server can make this client do.

use std::time::Duration;

/// Bytes of the event stream that answers one request.
pub(super) const MAX_STREAM_BYTES: usize = 64 << 20;
/// Bytes of one tool in a list, as JSON. A larger tool is left out.
pub(super) const MAX_TOOL_BYTES: usize = 1 << 20;
/// Bytes of the `annotations` of a tool.
pub(super) const MAX_ANNOTATION_BYTES: usize = 16 << 10;
/// JSON values in all tools of one list, nested ones included. Parsed, they take at most about 150 MB.
pub(super) const MAX_SCHEMA_VALUES: usize = 2_000_000;
/// Protocol revisions that a server lists as supported. Further ones are ignored.
pub(super) const MAX_VERSIONS: usize = 1_000;
/// Bytes of one elicitation, with its form.
pub(super) const MAX_ELICITATION_BYTES: usize = 64 << 10;
/// Bytes of the `requestState` that a server wants back with the responses to its input requests.
pub(super) const MAX_REQUEST_STATE: usize = 256 << 10;
/// Imported tools of one server. No model handles more.
pub(super) const MAX_TOOLS: usize = 5_000;
/// Listed resources of one server, and also its listed templates.
pub(super) const MAX_RESOURCES: usize = 1_000;
/// Bytes of one resource in a list, as JSON. A larger resource is left out.
pub(super) const MAX_RESOURCE_ITEM: usize = 64 << 10;
/// Parts of one resource in a response.
pub(super) const MAX_RESOURCE_PARTS: usize = 100;
/// Bytes of the response that contains a resource.
pub(super) const MAX_RESOURCE_BYTES: usize = 8 << 20;
/// Bytes of a saved list of tools. A longer list is not saved.
pub const MAX_SAVED_LIST_BYTES: usize = 8 << 20;
/// Timeout of loading the saved list before the server is started.
pub(super) const LOAD_LIST_TIMEOUT: Duration = Duration::from_secs(1);
/// Most pages of one list.
pub(super) const MAX_PAGES: usize = 500;
/// Bytes of all pages of one list.
pub(super) const MAX_LIST_BYTES: usize = 32 << 20;
/// Longest cursor, in bytes.
pub(super) const MAX_CURSOR: usize = 4 << 10;
/// Longest description of a tool, in characters. The longest descriptions of known servers have about 2,000.
pub(super) const MAX_DESCRIPTION: usize = 8_000;
/// Longest title, version or name of a server, in characters.
pub(super) const MAX_LABEL: usize = 100;
/// Concurrent requests to one server.
pub(super) const MAX_IN_FLIGHT: usize = 64;
/// Requests to one server that wait in the queue. Further requests fail with `busy`.
pub(super) const MAX_QUEUED: usize = 256;
/// Messages that wait to be written to a server.
pub(super) const OUTGOING_QUEUE: usize = 128;
/// Lines or events of one connection that are not messages; one more closes it. Banners and log lines on stdout are
/// common.
pub(super) const MAX_INVALID_MESSAGES: usize = 1_000;
/// Responses of one connection without a pending request; one more closes it. Late responses to cancelled requests are
/// counted, too.
pub(super) const MAX_UNMATCHED_RESPONSES: usize = 10_000;
/// Unknown ids of responses that the reason of a timeout names.
pub(super) const MAX_NOTED_IDS: usize = 3;
/// Longest such id, in characters.
pub(super) const MAX_NOTED_ID: usize = 40;
/// Longest line or event that is no message in the reason of a timeout, in characters.
pub(super) const MAX_NOTED_LINE: usize = 200;
/// Notifications and requests of a server within [`FLOOD_WINDOW`]; one more closes the connection.
pub(super) const MAX_UNSOLICITED_MESSAGES: u32 = 20_000;
/// The time window of [`MAX_UNSOLICITED_MESSAGES`] and [`MAX_UNSOLICITED_BYTES`].
pub(super) const FLOOD_WINDOW: Duration = Duration::from_secs(10);
/// Unsolicited bytes of a server within [`FLOOD_WINDOW`]; more close the connection.
pub(super) const MAX_UNSOLICITED_BYTES: usize = 64 << 20;
/// Bytes that are counted for each line in addition to its length, since even an empty line costs time.
pub(super) const MIN_LINE_COST: usize = 64;
/// How long the answer to a request may follow output that seems to be a damaged form of it, such as a log line, and how
/// long a line may have no end before it is looked at.
pub(super) const ANSWER_GRACE_PERIOD: Duration = Duration::from_secs(1);
/// Open elicitations of one server.
pub(super) const MAX_OPEN_ELICITATIONS: usize = 4;
/// Rounds of one call in which a server requests more input.
pub(super) const MAX_ROUNDS: usize = 8;
/// Input requests of one round.
pub(super) const MAX_INPUT_REQUESTS: usize = 16;
/// Shortest time between two forwarded progress events. Events in between are merged.
pub(super) const MIN_PROGRESS_INTERVAL: Duration = Duration::from_millis(50);
/// How often the stream of one request is resumed after it was interrupted.
pub(super) const MAX_RESUMES: usize = 8;
/// Delay before a stream is resumed, unless the server sends `retry`.
pub(super) const RESUME_DELAY: Duration = Duration::from_secs(1);
/// How long to wait for the response to `server/discover` before the older handshake is tried as well.
pub(super) const DISCOVER_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay between a change of a list and reading it again. It doubles while the list keeps changing.
pub(super) const REFRESH_DELAY: Duration = Duration::from_millis(500);
/// Upper limit of [`REFRESH_DELAY`].
pub(super) const MAX_REFRESH_DELAY: Duration = Duration::from_secs(60);
/// Delay before the first reconnect. It doubles with each failure.
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Upper limit of [`RETRY_DELAY`].
pub(super) const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// Consecutive failures after which a server is suspended for [`SUSPEND_DURATION`].
pub(super) const SUSPEND_AFTER_FAILURES: u32 = 8;
/// How long a server is suspended after [`SUSPEND_AFTER_FAILURES`] failures.
pub(super) const SUSPEND_DURATION: Duration = Duration::from_secs(300);
/// Lifetime of a connection after which earlier failures no longer count.
pub(super) const STABLE_AFTER: Duration = Duration::from_secs(30);
/// Consecutive calls that timed out, with no message in between, after which a server counts as hung.
pub(super) const HUNG_AFTER: u32 = 3;
/// How long a server has to exit after its stdin was closed.
pub(super) const EXIT_GRACE_PERIOD: Duration = Duration::from_secs(1);
/// Timeout of closing a session with a server.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of sending a cancellation, or a response to a request of the server, over HTTP.
pub(super) const NOTIFY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a server that answered a `ping` in a session counts as one that knows it, whatever errors its tools return.
pub(super) const SESSION_PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// Delay before the stream of unsolicited messages is opened again. It doubles while the stream keeps failing.
pub(super) const LISTEN_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Upper limit of [`LISTEN_RETRY_DELAY`].
pub(super) const MAX_LISTEN_RETRY_DELAY: Duration = Duration::from_secs(60);
/// Longest line of a server's stderr in the log, in characters.
pub(super) const MAX_LOG_LINE: usize = 500;
/// Last lines of a server's stderr that are reported when it exits.
pub(super) const MAX_STDERR_TAIL_LINES: usize = 10;
/// Characters of these lines together. The oldest lines are dropped first.
pub(super) const MAX_STDERR_TAIL_CHARS: usize = 800;
/// Lines of a server in the log per minute.
pub(super) const MAX_LOG_LINES: u32 = 200;
/// Longest quotation of a server in a message of this host, in characters, after redaction.
pub(super) const MAX_QUOTED_CHARS: usize = 1_000;
/// Bytes of all responses of one server that are buffered while they are read.
pub(super) const MAX_RESPONSE_BUFFER_BYTES: usize = 256 << 20;
/// Bytes that are read of a response with an error status.
pub(super) const MAX_ERROR_BODY: usize = 64 << 10;
/// Problems in the status of one server.
pub(super) const MAX_PROBLEMS: usize = 50;
/// Tokens that are tried for one request: a renewed one, one of a login, and one with more scopes.
pub(super) const MAX_TOKEN_TRIES: u32 = 3;
