/** Run the tools of LLM agents in a sandbox: plugins in WebAssembly, and functions of your program. */

/// <reference lib="esnext.disposable" />

import type * as schema from './lib/schema.js';

/**
 * Tools, calls and results in the formats of model vendors: `openai-chat`, `openai-responses`, `anthropic`, `gemini` and
 * `mcp`.
 */
export namespace vendor {
  /**
   * The tools of a view, for the field `tools` of a request. With `strict`, the vendor constrains the arguments of each tool
   * whose schema it can express. Large integers in schemas are rounded, so that `JSON.stringify` can write them.
   */
  function viewDefinitions(vendor: string, view: View, options?: { strict?: boolean }): any[];
  /**
   * The calls in a response, message or list of calls, or in their JSON text, which keeps all digits of integers. If the
   * model wrote arguments that JavaScript cannot hold, their call fails with `input_invalid`; the others run.
   */
  function parseCalls(vendor: string, message: unknown): ToolCall[];
  /** The messages that follow the model's message: one result for each call. They are for `JSON.stringify`. */
  function resultMessages(vendor: string, results: readonly CallResult[]): any[];
}

/** The policy: what an operator grants. A mistake in it is a {@link HostError} of the kind `policy`. */
export class Policy {
  // Otherwise any value would have this type.
  #source;
  private constructor();
  /** Reads a file. Relative paths in it mean the folder of the file. */
  static read(file: string | URL): Policy;
  /** Parses a text in TOML, or an object of its tables. Relative paths mean the folder `base`. */
  static parse(policy: string | object, options: { base: string | URL }): Policy;
  /** A policy that grants nothing. `base` is the workspace. */
  static denyAll(base: string | URL): Policy;
}

/** A conversation: its budgets, approvals and saved outputs. A `name` continues one after a restart. */
export class Session {
  constructor(options?: {
    name?: string;
    id?: string;
    maxCalls?: number;
    maxIdenticalCalls?: number;
    maxCallsPerTurn?: number;
    maxIdenticalCallsPerTurn?: number;
    maxCostUsd?: number;
  });
  /** The id, which plugins get and the audit names. */
  get id(): string;
  /** The calls so far. */
  get calls(): number;
  /** What the calls cost so far, in US dollars. */
  get costUsd(): number;
}

/** The tools that a model sees and may call: a snapshot, made by {@link Host.view}. */
export interface View {
  /** The listed tools. */
  readonly tools: readonly {
    name: string;
    title: string | null;
    description: string;
    inputSchema: any;
    outputSchema: any;
    source: string;
  }[];
}

/** A host of plugins and native tools. */
export class Host {
  private constructor();
  /**
   * Opens a host. `await using host = await Host.start(policy)` closes it at the end of the block.
   *
   * A file of the folder `plugins` that does not load is an entry of {@link Host.problems}.
   */
  static start(policy: Policy, options?: Host.Options): Promise<Host>;
  /** Cancels the calls and ends the servers, and waits for them for at most five seconds. A second call waits, too. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
  /**
   * Runs calls in parallel. Resolves to one result for each, in their order; a call that fails rejects nothing. If
   * `signal` is aborted, the calls are cancelled and the promise rejects with its reason.
   */
  callAll(
    view: View, calls: Iterable<ToolCall>, options?: Host.CallOptions & { progress?: (event: ProgressEvent) => void },
  ): Promise<CallResult[]>;
  /** Runs calls in parallel, and yields their progress and results as they come. Leaving the loop cancels the rest. */
  stream(
    view: View, calls: Iterable<ToolCall>, options?: Host.CallOptions,
  ): AsyncGenerator<ProgressEvent | CallResult, void, void>;
  /** A view of the current tools. An absent list allows all, an empty one none. Make a view for each turn. */
  view(filter?: Host.Filter): View;
  /** Registers native tools: all of them, or none if a name is taken. */
  register(...tools: readonly tool.Definition[]): void;
  /** Unregisters a native tool. Returns false if it was not registered. Calls in progress end as usual. */
  unregister(tool: string | tool.Definition): boolean;
  /** Loads a plugin from a file, and replaces the one with this id. Resolves to warnings. */
  loadFile(plugin: string, file: string | URL): Promise<string[]>;
  /** Loads a plugin from memory, and replaces the one with this id. Resolves to warnings. */
  loadBytes(plugin: string, component: Uint8Array): Promise<string[]>;
  /** Unloads a plugin. Returns false if it was not loaded. Calls in progress end as usual. */
  unload(plugin: string): boolean;
  /** Replaces the policy, as a whole or not at all. `restart` has the keys that apply after a restart. */
  reloadPolicy(
    policy: Policy,
  ): Promise<{ changes: { plugin: string; change: string }[]; warnings: string[]; restart: string[] }>;
  /** The files that are not loaded. `kept` says whether an older version stays. */
  get problems(): { file: string; plugin: string | null; message: string; kept: boolean }[];
  /** The most recent calls, the newest first. This log is in memory; the audit is permanent. */
  calls(query?: { limit?: number; tool?: string; outcome?: string; sessionId?: string }): {
    number: number;
    callId: string;
    tool: string;
    source: string | null;
    sessionId: string | null;
    outcome: string;
    cached: boolean;
    durationMs: number;
    waitedMs: number;
    costUsd: number | null;
  }[];
}

export namespace Host {
  interface Options {
    /** The folder with plugins. */
    plugins?: string | URL;
    /** The folder for state: the audit, key-value storage and saved outputs. */
    stateDir?: string | URL;
    /** The folder for compiled plugins; by default it is in the cache of the user. */
    cacheDir?: string | URL;
    /** Decides on calls that need approval. Without one they are refused. */
    approver?: (request: ApprovalRequest) => ApprovalReply | PromiseLike<ApprovalReply>;
    /** How long to wait for a state file that another process writes. */
    stateWaitMs?: number;
    /** How long to wait for MCP servers and OpenAPI documents. */
    sourceWaitMs?: number;
    /** How many calls {@link Host.calls} has. */
    callLog?: number;
  }
  interface CallOptions {
    session?: Session;
    /** Cancels the calls, and fails the promise or the stream with its reason. */
    signal?: AbortSignal;
    /** Cancels the calls that still run after this time. Their results say so, and the others stay. */
    timeoutMs?: number;
    /** How many characters the results may have together. */
    budgetChars?: number;
    /** Asks tools to describe the effect and do nothing. */
    dryRun?: boolean;
    /** What plugins can ask for. */
    identity?: {
      sessionKey?: string;
      platform?: string;
      client?: string;
      agentId?: string;
      personalityId?: string;
      teamId?: string;
      turn?: number;
      messageCount?: number;
      traceparent?: string;
      attributes?: object;
    };
  }
  type Names = readonly string[] | ReadonlySet<string>;
  interface Filter {
    /** The name of a profile in the policy. */
    profile?: string;
    allowedTools?: Names;
    allowedPlugins?: Names;
    allowedToolsets?: Names;
    allowedTags?: Names;
    allowedMcpServers?: Names;
    allowedMcpTools?: Readonly<Record<string, Names>>;
    excludeTools?: Names;
    excludeTags?: Names;
    /** Lists tools that find and call the others. */
    lazy?: boolean;
    /** Whether each tool has an argument for the reason of its call. */
    toolcallReason?: boolean;
  }
}

/** A call of a tool. */
export interface ToolCall {
  /** Your id of the call. */
  id: string;
  /** The name of the tool. */
  tool: string;
  /** An object, or a JSON text, which reaches the tool as it is. Absent arguments are `{}`. */
  args?: string | object;
  idempotencyKey?: string;
}

interface CallResultFields {
  readonly type: 'result';
  /** Your id of the call. */
  readonly callId: string;
  /** The name of the tool. */
  readonly tool: string;
  /** What the call cost, in US dollars. A failed call may have a cost as well. */
  readonly costUsd: number | null;
  /** Milliseconds from the arrival of the call to its result. */
  readonly durationMs: number;
  /** Where the tool comes from: `plugin:ID`, `mcp:NAME`, `openapi:NAME` or `builtin`. */
  readonly source: string | null;
  /** The age of the result, if an earlier call computed it. */
  readonly cachedMs: number | null;
  /** SHA-256 of the call: equal calls have equal digests. */
  readonly callSha256: string | null;
  /** The characters of the text before it was cut; null if it was not cut. */
  readonly cutFromChars: number | null;
  /** The ids of texts that were saved because they were cut. */
  readonly saved: readonly string[];
  /** Whether the text is from third parties, and marked so. */
  readonly untrusted: boolean;
  /** What the plugin used. */
  readonly usage: {
    readonly fuel: number | null;
    readonly wallMs: number;
    readonly queuedMs: number;
    readonly peakMemoryBytes: number;
    readonly argsBytes: number;
    readonly resultBytes: number;
  };
  /** Policy lines that would allow what was refused, for the operator. */
  readonly hints: readonly string[];
}

/** The result of a call: an output or a failure. */
export type CallResult =
  | (CallResultFields & { readonly ok: true; readonly output: ToolOutput; readonly failure: null })
  | (CallResultFields & { readonly ok: false; readonly output: null; readonly failure: Failure });

/** An output: text for the model, data for programs, content blocks as in MCP, and the cost in US dollars. */
export class ToolOutput {
  constructor(
    value?: string,
    options?: { structured?: unknown; content?: readonly object[]; costUsd?: number | null; meta?: object | null },
  );
  readonly value: string;
  /** The data for programs, parsed when they are read; null if there are none. Large integers are BigInts. */
  get structured(): any;
  /** The metadata for the host, parsed when it is read; null if there are none. */
  get meta(): any;
  /** Content blocks as in MCP. */
  readonly content: readonly any[];
  readonly costUsd: number | null;
}

/** Why a call has no output. */
export interface Failure {
  /** `refused`: the tool or a gate said no. `fault`: the plugin misbehaved or hit `limit`. `host`: the host failed. */
  readonly kind: 'refused' | 'fault' | 'host';
  readonly code: string;
  readonly message: string;
  readonly subject: string | null;
  readonly limit: string | null;
  /** Milliseconds after which another attempt may succeed. */
  readonly retryAfterMs: number | null;
  /** Policy lines that would allow it, for the operator. Models do not read them. */
  readonly hints: readonly string[];
}

/** The progress of a running call. The tool wrote the message. */
export interface ProgressEvent {
  readonly type: 'progress';
  readonly callId: string;
  readonly tool: string;
  readonly message: string;
  readonly percent: number | null;
  readonly audience: 'user' | 'internal' | 'dashboard';
}

/** A call that needs approval. A model wrote `args`. */
export interface ApprovalRequest {
  readonly callId: string;
  readonly tool: string;
  readonly source: string;
  /** Who asks: `client`, `agent`, `platform`, `session`, `profile`, as far as they are known. */
  readonly caller: Readonly<Record<string, string>>;
  readonly args: any;
  /** The beginning of the arguments as JSON, for people. */
  readonly preview: string;
  /** SHA-256 of all arguments. */
  readonly argsSha256: string;
  readonly reason: string;
  /** Aborted when an answer would come too late. */
  readonly signal: AbortSignal;
}

/**
 * The answer of an approver: `yes`, `always` (for the rest of the session), `deferred` (the answer comes with the next
 * attempt), `no`, or `no` with a comment.
 */
export type ApprovalReply = 'yes' | 'always' | 'deferred' | 'no' | { no: string };

/** A running call of a native tool. */
export interface CallContext {
  readonly callId: string;
  readonly tool: string;
  /** How many characters the text of the result may have before it is cut. */
  readonly budgetChars: number;
  /** Whether to describe the effect and do nothing. */
  readonly dryRun: boolean;
  readonly profile: string | null;
  readonly sessionId: string | null;
  readonly sessionKey: string | null;
  readonly platform: string | null;
  readonly agentId: string | null;
  readonly personalityId: string | null;
  readonly teamId: string | null;
  readonly turn: number | null;
  readonly messageCount: number | null;
  readonly attributes: Readonly<Record<string, any>>;
  /** Aborted when the call is cancelled or exceeds its timeout. */
  readonly signal: AbortSignal;
  /** Reports progress; `percent` is 0 to 100. */
  progress(message: string, percent?: number | null, audience?: 'user' | 'internal' | 'dashboard'): void;
}

/** Describes a native tool, for {@link Host.register}. */
export function tool<const I extends Record<string, tool.Schema> | tool.Schema = {}>(
  options: tool.Options<I>,
): tool.Definition;

export namespace tool {
  /** A JSON Schema (2020-12). `optional` is only for a property of `input`. */
  type Schema = schema.Schema;
  /** The type of a schema's values, derived from its `type`, `enum`, `items` and `properties`. */
  type Value<S extends Schema> = schema.Value<S>;
  /** The arguments of a tool. `optional` ones may be missing. */
  type Args<I> = schema.Args<I>;

  interface Options<I> {
    /** 1 to 48 letters, digits, `_` or `-`. */
    name: string;
    title?: string;
    /** The description by which a model chooses the tool. */
    description: string;
    /**
     * The properties of the arguments, required unless they have a `default` or are `optional`; or a schema of an object.
     */
    input?: I;
    /** The schema of the structured result. Values that are not objects are wrapped under `result`. */
    output?: Schema;
    namespace?: string;
    toolset?: string;
    tags?: readonly string[];
    searchHint?: string;
    maxResultChars?: number;
    timeoutMs?: number;
    /** Runs the calls one after the other, with those of other tools of the same queue if it is a text. */
    serial?: boolean | string;
    /** How long a result answers equal calls. */
    cacheMs?: number;
    readOnly?: boolean;
    additive?: boolean;
    idempotent?: boolean;
    closedWorld?: boolean;
    alwaysInclude?: boolean;
    untrustedOutput?: boolean;
    needsApproval?: boolean;
    deferred?: boolean;
    /**
     * Runs a call. A text is unchanged, undefined is an empty output, and any other value becomes JSON, which programs get
     * in `structured`. An error fails the call.
     */
    run(args: Args<I>, context: CallContext): unknown;
  }

  /** A native tool. */
  interface Definition {
    readonly name: string;
    readonly description: string;
  }
}

/**
 * An error of a native tool. The model reads its message unchanged; `subject` is a JSON pointer to an argument, or a short
 * reason.
 */
export class ToolError extends Error {
  constructor(
    code: 'input_invalid' | 'not_available' | 'execution_failed' | 'STALE_WRITE',
    message: string,
    options?: { subject?: string | null; costUsd?: number | null; cause?: unknown },
  );
  readonly code: string;
  readonly subject: string | null;
  readonly costUsd: number | null;
}

/** The host failed. A policy error has `file`, `line` and `key` as far as they are known. */
export class HostError extends Error {
  private constructor();
  readonly kind: 'policy' | 'load' | 'state' | 'executable' | 'closed' | 'internal';
  readonly file: string | null;
  readonly line: number | null;
  readonly key: string | null;
}

export {};
