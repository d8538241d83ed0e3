// What the tests share: a host with the plugin `text`, and programs in processes of their own.

import { spawn } from 'node:child_process';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';

import { Host, Policy } from 'toolbay';
import type { CallResult } from 'toolbay';

// `cargo xtask test node` sets both.
const PLUGINS = process.env['TOOLBAY_TEST_PLUGINS'] ?? 'target/plugins';
export const CACHE = join(process.env['TOOLBAY_TEST_CACHE'] ?? tmpdir(), 'toolbay-cache');

/** The folder of a test. */
export class TestFolder {
  readonly path = mkdtempSync(join(tmpdir(), 'toolbay-'));

  constructor(test: TestContext) {
    test.after(() => rmSync(this.path, { recursive: true }));
  }

  /** Opens a host that grants nothing. It is closed before the folder is gone. */
  async host(options: Host.Options = {}): Promise<Host> {
    return await Host.start(Policy.denyAll(this.path), { cacheDir: CACHE, ...options });
  }

  get state(): string {
    return join(this.path, 'state');
  }

  /** A folder with the plugin `text`. */
  get plugins(): string {
    const plugins = join(this.path, 'plugins');
    mkdirSync(plugins);
    copyFileSync(join(PLUGINS, 'text.wasm'), join(plugins, 'text.wasm'));
    return plugins;
  }

  /** The audit in the state directory. */
  get audit(): string {
    return readFileSync(join(this.state, 'audit.jsonl'), 'utf8');
  }
}

/** Calls one tool. */
export async function call(
  host: Host, tool: string, args: object | string = {}, options: NonNullable<Parameters<Host['callAll']>[2]> = {},
): Promise<CallResult> {
  const [result] = await host.callAll(host.view(), [{ id: '1', tool, args }], options);
  if (result === undefined) throw new Error('no result');
  return result;
}

/** Calls one tool that succeeds. */
export async function callOk(...args: Parameters<typeof call>): Promise<CallResult & { ok: true }> {
  const result = await call(...args);
  if (!result.ok) throw new Error(`${result.failure.code}: ${result.failure.message}`);
  return result;
}

/** Calls one tool that fails. */
export async function callFails(...args: Parameters<typeof call>): Promise<CallResult & { ok: false }> {
  const result = await call(...args);
  if (result.ok) throw new Error(`the call returned ${result.output.value}`);
  return result;
}

export interface LogEntry {
  level: string;
  message: string;
  error: unknown;
}

/** The messages of the library during a test. */
export function logged(test: TestContext): LogEntry[] {
  const entries: LogEntry[] = [];
  const add = (entry: unknown) => entries.push(entry as LogEntry);
  subscribe('toolbay', add);
  test.after(() => unsubscribe('toolbay', add));
  return entries;
}

export interface ProgramEnd {
  code: number | null;
  signal: string | null;
  output: string;
  errors: string;
}

/** Runs a program in a Node of its own. */
export function runProgram(source: string, ...args: string[]): Promise<ProgramEnd> {
  return run(process.execPath, ['--input-type=module', '--eval', source, ...args]);
}

/** Runs a command in the folder of the tests. */
export function run(program: string, args: string[], env: NodeJS.ProcessEnv = process.env): Promise<ProgramEnd> {
  const child = spawn(program, args, { cwd: import.meta.dirname, env, stdio: ['ignore', 'pipe', 'pipe'], timeout: 60_000 });
  let output = '';
  let errors = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (output += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (errors += text));
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code, signal) => resolve({ code, signal, output, errors }));
  });
}

/** A promise that a test resolves. */
export const gate = () => Promise.withResolvers<void>();

/** A promise that never resolves. */
export const forever = () => new Promise<never>(() => {});
