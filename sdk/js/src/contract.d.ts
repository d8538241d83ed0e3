// Generated from `wit`, `sdk/errors.toml` and the tables of `host/policy` by its `sdk_tests.rs`.

export type ErrorCode = "input-invalid" | "not-available" | "execution-failed" | "stale-write";

export type Scope = "tool" | "plugin" | "session" | "agent";

type Targets = string | readonly string[];

/** The kinds of capability. */
export interface Kinds {
  /** files to read */
  fsRead?: Targets;
  /** files to write; does not allow reading */
  fsWrite?: Targets;
  /** requests and connections: methods, scheme, host, port and path */
  net?: Targets;
  /** programs of `[programs]`, with patterns for their arguments */
  process?: Targets;
  /** credentials of `[secrets]`, by name */
  secret?: Targets;
  /** scopes of the key-value store: `tool`, `plugin`, `session`, `agent` */
  kv?: Scope | readonly Scope[];
  /** environment variables, `TZ` with the host's value or `TZ=UTC` with a fixed value */
  env?: Targets;
  /** attachments: `read`, `create`, or with a media type, `read image/*` */
  attachments?: Targets;
  /** the real clock */
  clock?: true;
  /** unpredictable bytes */
  random?: true;
  /** calls of other tools, by name, `files__read_file`, or by prefix, `files__*` */
  invoke?: Targets;
}

/** The author's claims about a tool. Without claims the host assumes the worst. */
export interface Traits {
  /** Does not change its environment (MCP `readOnlyHint`). */
  readOnly?: boolean;
  /** Changes only by adding (MCP `destructiveHint: false`). */
  additive?: boolean;
  /** Repeating the call changes nothing more (MCP `idempotentHint`). */
  idempotent?: boolean;
  /** Acts only on entities that the host knows (MCP `openWorldHint: false`). */
  closedWorld?: boolean;
  /** Requests to be listed whatever the toolset filter says. The operator must allow it. */
  alwaysInclude?: boolean;
  /** The output contains text of others (pages, files, mails, stdout). */
  untrustedOutput?: boolean;
  /** A user should approve each call. */
  needsApproval?: boolean;
  /** Omitted from the first tool list; found by search. */
  deferred?: boolean;
}
