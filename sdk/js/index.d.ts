/** Write Toolbay plugins in JavaScript or TypeScript. */

import type * as contract from './src/contract.js';
import type { ErrorCode, Kinds, Traits } from './src/contract.js';
import type { Args, Schema, Value } from './src/schema.js';

export type { Args, ErrorCode, Schema, Traits, Value };

/** A JSON value. Integers that a number cannot hold are BigInts. */
export type Json = null | boolean | number | bigint | string | Json[] | { [key: string]: Json };

/** A result besides an {@link Output}: text is unchanged, anything else becomes JSON. */
export type Result = void | undefined | null | boolean | number | bigint | string | object;

/** The capabilities that a tool requests, with reasons. Each needs a grant of the operator. */
export interface Needs extends Kinds {
  /** The tool also works without it. */
  optional?: boolean;
  /** The reason, for the operator who decides. */
  reason?: string;
}

export interface ToolOptions<I> extends Traits {
  /** 1 to 48 letters, digits, `_` or `-`. */
  name: string;
  title?: string;
  /** The description by which a model chooses the tool. */
  description: string;
  /** The properties of the arguments, required unless they have a `default` or are `optional`; or a schema of an object. */
  input?: I;
  /** The schema of the structured result. Values that are not objects are wrapped under `result`. */
  output?: Schema;
  toolset?: string;
  tags?: readonly string[];
  maxResultChars?: number;
  timeoutMs?: number;
  needs?: Needs | readonly Needs[];
  /** Calls that `toolbay test` makes, with the expected text, a part of it, the structured result, or the error's code. */
  examples?: readonly { args: object; value?: string; contains?: string; structured?: object; error?: ErrorCode }[];
  meta?: object;
  /** Not `async`, because calls of the host are synchronous. */
  run(args: Args<I>, call: typeof context): Result;
}

export interface Tool { readonly definition: object }
export interface Reducer { readonly definition: object }
export interface Plugin { readonly tools: readonly Tool[]; readonly reducers: readonly Reducer[] }

export interface ReduceContext {
  readonly toolName: string;
  readonly args: any;
  readonly turnCount: number;
  readonly budgetChars: number;
}

/** Describes a tool. */
export function tool<const I extends Record<string, Schema> | Schema = {}>(options: ToolOptions<I>): Tool;
/** Describes a reducer, which shortens results of one tool. Null keeps the result. */
export function reducer(options: {
  tool: string;
  description?: string;
  reduce(result: Output | ToolError, context: ReduceContext): Output | ToolError | string | null | undefined;
}): Reducer;
/**
 * Creates a plugin, the default export of the module. `available` returns the reason why a tool is unavailable.
 * `reusable` declares that one instance may serve several calls, one after the other, without shared state.
 */
export function plugin(parts: {
  tools?: readonly Tool[];
  reducers?: readonly Reducer[];
  available?(tool: string): string | null | undefined | void;
  reusable?: boolean;
}): Plugin;

/** An error of a tool. The model reads its message unchanged. */
export class ToolError extends Error {
  constructor(code: ErrorCode, message: string, subject?: string | null, options?: { costUsd?: number });
  readonly code: ErrorCode;
  readonly subject: string | null;
  readonly costUsd: number | null;
}
/** The tool cannot accept the arguments of the model; `subject` is a JSON pointer to the argument. */
export function inputError(message: string, subject?: string | null, options?: { costUsd?: number }): ToolError;
/** The tool cannot run now; `subject` is a short machine-readable reason. */
export function notAvailable(message: string, subject?: string | null, options?: { costUsd?: number }): ToolError;
/** The tool ran and failed; `subject` is a cause, if known. */
export function failed(message: string, subject?: string | null, options?: { costUsd?: number }): ToolError;
/** The target of a write changed since it was read; `subject` is the path or key. */
export function stale(message: string, subject?: string | null, options?: { costUsd?: number }): ToolError;

/** A result built by hand. */
export class Output {
  constructor(value?: string);
  value: string;
  data: unknown;
  /** Sets the structured result for programs. A value that is not an object is wrapped as `{result: …}`. */
  structured(data: unknown): this;
  text(text: string): this;
  image(bytes: Uint8Array, mimeType: string): this;
  audio(bytes: Uint8Array, mimeType: string): this;
  /** Adds a resource with its content. */
  embedded(uri: string, data: string | Uint8Array, mimeType?: string | null): this;
  /** Annotates the last block. An empty audience means everyone; `priority` is 0 to 1, `lastModified` ISO 8601. */
  annotate(annotations: { audience?: readonly ('user' | 'assistant')[]; priority?: number; lastModified?: string }): this;
  link(uri: string, name: string, more?: { title?: string; description?: string; mimeType?: string; size?: number }): this;
  /** Sets the cost of the call, in US dollars. */
  cost(usd: number): this;
  /** Adds metadata for the host. The model never sees it. */
  metadata(meta: object): this;
}
/** A result with a text for the model and data for programs. */
export function rendered(text: string, data: unknown): Output;

/** The running call. */
export namespace context {
  type Audience = 'internal' | 'user' | 'dashboard';
  function progress(message: string, percent?: number | null, audience?: Audience): void;
  function cancelled(): boolean;
  function checkCancelled(): void;
  function budgetChars(): number;
  function remainingMs(): number | null;
  function dryRun(): boolean;
  function callId(): string;
  function sessionId(): string | null;
  function sessionKey(): string | null;
  function platform(): string | null;
  function workingDir(): string | null;
  function agentId(): string | null;
  function personalityId(): string | null;
  function teamId(): string | null;
  function turn(): number | null;
  function messageCount(): number | null;
  function attribute(name: string): any;
}

/** Log lines for the operator. */
export namespace log {
  type Fields = Readonly<Record<string, unknown>>;
  function trace(message: string, fields?: Fields): void;
  function debug(message: string, fields?: Fields): void;
  function info(message: string, fields?: Fields): void;
  function warn(message: string, fields?: Fields): void;
  function error(message: string, fields?: Fields): void;
}

/** The operator's settings for this plugin. */
export namespace config {
  function get(key: string, otherwise?: any): any;
  function require(key: string): any;
  function keys(): string[];
}

/** State that outlives a call. */
export namespace kv {
  type Scope = contract.Scope;
  function get(scope: Scope, key: string): Uint8Array | null;
  function getText(scope: Scope, key: string): string | null;
  function getJson(scope: Scope, key: string): any;
  function set(scope: Scope, key: string, value: string | Uint8Array, options?: { ttlSeconds?: number | null }): void;
  function setJson(scope: Scope, key: string, value: unknown, options?: { ttlSeconds?: number | null }): void;
  function remove(scope: Scope, key: string): void;
  function keys(scope: Scope, prefix?: string, options?: { after?: string | null; limit?: number }): string[];
  /** Adds atomically to a number. Exact up to 2^53. */
  function increment(scope: Scope, key: string, by?: number): number;
  /** Sets a key only if it holds `expected` (null: no value). Returns whether it did. */
  function replace(scope: Scope, key: string, expected: string | Uint8Array | null, value: string | Uint8Array): boolean;
}

/** Credentials by name. */
export namespace secrets {
  function get(name: string): { text: string; revealed: boolean };
}

/** HTTP through the host's policy, one buffered exchange at a time. */
export namespace http {
  interface Options {
    headers?: Readonly<Record<string, string>>;
    body?: string | Uint8Array | null;
    /** Sets a JSON body and its content type. */
    json?: unknown;
    timeoutMs?: number | null;
    maxResponseBytes?: number | null;
  }
  class Response {
    readonly status: number;
    readonly url: string;
    readonly headers: [string, string][];
    readonly body: Uint8Array;
    readonly truncated: boolean;
    /** Returns the response if its status is 2xx, otherwise throws an error with the status. */
    ok(): this;
    header(name: string): string | null;
    text(): string;
    json(): any;
  }
  function request(method: string, url: string, options?: Options): Response;
  function get(url: string, options?: Options): Response;
  function post(url: string, options?: Options): Response;
}

/** Files under the operator's globs, with a guard against blind overwrites. */
export namespace files {
  type Kind = 'file' | 'directory' | 'symlink' | 'other';
  interface Stat { kind: Kind; size: number; modifiedMs: number; version: string }
  function read(path: string, options?: { offset?: number; maxBytes?: number | null }): { data: Uint8Array; stat: Stat };
  function readText(path: string): string;
  function write(path: string, data: string | Uint8Array, expectedVersion?: string | null): Stat;
  function stat(path: string): Stat;
  function readDir(path: string): { name: string; kind: Kind }[];
  function makeDir(path: string): void;
  function remove(path: string): void;
}

/** Calls of other tools. Each passes the same gates as a call of a model. */
export namespace invoke {
  interface Callable { name: string; description: string; inputSchema: any; outputSchema: any }
  interface Invoked { value: string; structured: any; truncated: boolean }
  /** The callable tools, sorted by name. */
  function tools(): Callable[];
  function call(name: string, args?: object): Invoked;
  /** Makes calls concurrently. Returns the result or the error of each, in order. */
  function callAll(calls: readonly (readonly [name: string, args?: object])[]): (Invoked | ToolError)[];
}

/** Programs on the operator's list. */
export namespace process {
  interface Options {
    cwd?: string | null;
    env?: Readonly<Record<string, string>>;
    stdin?: string | Uint8Array | null;
    timeoutMs?: number | null;
    maxOutputBytes?: number | null;
  }
  function run(program: string, args?: readonly string[], options?: Options):
    { exitCode: number | null; stdout: string; stderr: string; truncated: boolean };
}

/** Files of the conversation turn, and files that the tool returns. */
export namespace attachments {
  interface Attachment { id: string; name: string; mimeType: string; size: number }
  function all(): Attachment[];
  function read(id: string): Uint8Array;
  function readText(id: string): string;
  function create(name: string, mimeType: string, data: string | Uint8Array): Attachment;
}
