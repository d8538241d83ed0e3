/** A fake host in Node for tests of tools. */

import type { Plugin } from './index.d.ts';

type Bytes = string | Uint8Array;

export interface Answer { status?: number; url?: string; headers?: Record<string, string>; body?: Bytes; truncated?: boolean }
export interface Request { method: string; url: string; headers: [string, string][]; body: Uint8Array | null }
export interface Command { program: string; args: string[]; cwd: string | null; env: [string, string][]; stdin: Uint8Array | null }
export interface Completed { exitCode?: number; stdout?: Bytes; stderr?: Bytes; truncated?: boolean }

/** A host for tests. It grants only what it was given. */
export class FakeHost {
  constructor(given?: {
    files?: Record<string, Bytes>;
    kv?: Record<string, Bytes>;
    config?: Record<string, unknown>;
    secrets?: Record<string, string>;
    http?(request: Request): Answer;
    process?(command: Command): Completed;
    /** Tools that can be called: each returns its text, or text and data. */
    tools?: Record<string, (args: any) => string | { value: string; structured?: object }>;
    /** The number of checks after which the call is cancelled. */
    cancelAfter?: number;
    budgetChars?: number;
    dryRun?: boolean;
    attributes?: Record<string, unknown>;
    /** Whether tools that declare `random` may draw random numbers. */
    random?: boolean;
  });
  readonly progress: { message: string; percent: number | null; audience: string }[];
  readonly invocations: { name: string; args: any }[];
  readonly log: { level: string; message: string; fields: Record<string, string> }[];
  /** Runs code with this host. */
  run<T>(code: () => T): T;
  /** Calls a tool as the host does, without the check against the schema. */
  call(plugin: Plugin, name: string, args?: object): { value: string; structured: any; content: any[]; costUsd: number | null };
}

/** The definition of a tool as the host sees it, with parsed schemas. */
export function describe(plugin: Plugin, name: string): any;
