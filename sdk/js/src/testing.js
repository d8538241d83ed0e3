// A fake host in Node for tests of tools: `new FakeHost({ files: { 'a.csv': '…' } }).call(plugin, 'sum', {…})`.

import { randomFillSync } from 'node:crypto';
import { exported } from './plugin.js';
import { install } from './random.js';
import * as utf8 from './bytes.js';
import { ToolError, toRecord } from './errors.js';

const NO_FAKE = 'not granted: this is a native test without `FakeHost`, or without this in the fake';

let current = null;

const refusal = (tag, val) => ({ tag, val });
const denied = () => {
  throw refusal('denied', NO_FAKE);
};

/** A host for tests. It grants only what it was given. */
export class FakeHost {
  constructor({ files, kv, config = {}, secrets, http, process, tools, random = false, cancelAfter = null, budgetChars = 80_000, dryRun = false, attributes = {} } = {}) {
    this.files = files && new Map(Object.entries(files).map(([path, data]) => [path, { data: utf8.bytes(data), version: 1 }]));
    this.kv = kv && new Map(Object.entries(kv).map(([key, data]) => [key, utf8.bytes(data)]));
    Object.assign(this, { config, secrets, http, process, tools, random, cancelAfter, budgetChars, dryRun, attributes });
    /** Reported progress: `{message, percent, audience}`. */
    this.progress = [];
    /** Log lines: `{level, message, fields}`. */
    this.log = [];
    /** Calls of other tools: `{name, args}`. */
    this.invocations = [];
  }

  /** Runs code with this host. */
  run(code) {
    const before = current;
    current = this;
    // As in a component, `Math.random` needs a grant.
    const restore = before === null ? install() : () => {};
    try {
      return code();
    } finally {
      current = before;
      restore();
    }
  }

  /** Calls a tool of a plugin as the host does: returns `{value, structured, content, …}` or throws a ToolError. */
  call(plugin, name, args = {}) {
    const { tools } = exported(plugin, null);
    try {
      const output = this.run(() => tools.call(name, JSON.stringify(args)));
      return { ...output, structured: output.structured === null ? null : JSON.parse(output.structured) };
    } catch (error) {
      throw error instanceof Error ? error : new ToolError(error.code, error.message, error.subject, error);
    }
  }
}

/** The definition of a tool as the host sees it, with parsed schemas. */
export function describe(plugin, name) {
  const found = exported(plugin, null).tools.listTools().find((definition) => definition.name === name);
  if (!found) throw new Error(`no tool \`${name}\``);
  const { inputSchema, outputSchema } = found;
  return { ...found, inputSchema: JSON.parse(inputSchema), outputSchema: outputSchema && JSON.parse(outputSchema) };
}

const none = () => null;

function file(path) {
  const found = (current?.files ?? denied()).get(path);
  if (!found) throw refusal('not-found');
  return found;
}

const statOf = ({ data, version }) => ({ kind: 'file', size: data.length, modifiedMs: 0, version: `v${version}` });

/** The interfaces of the active fake host. */
export const host = {
  context: {
    progress: (message, percent, audience) => current?.progress.push({ message, percent, audience }),
    cancelled: () => current !== null && current.cancelAfter !== null && current.cancelAfter-- <= 0,
    budgetChars: () => current?.budgetChars ?? 0xffff_ffff,
    dryRun: () => current?.dryRun ?? false,
    callId: () => 'fake-call',
    attribute(name) {
      if (name === 'granted' && current !== null) return JSON.stringify(current.random ? ['random'] : []);
      return name in (current?.attributes ?? {}) ? JSON.stringify(current.attributes[name]) : null;
    },
    remainingMs: none, sessionId: none, sessionKey: none, platform: none, workingDir: none, agentId: none,
    personalityId: none, teamId: none, turn: none, messageCount: none,
  },
  log: { write: (level, message, fields) => current?.log.push({ level, message, fields: Object.fromEntries(fields) }) },
  config: {
    get: (key) => (key in (current?.config ?? {}) ? JSON.stringify(current.config[key]) : null),
    keys: () => Object.keys(current?.config ?? {}),
  },
  kv: {
    get: (_, key) => (current?.kv ?? denied()).get(key) ?? null,
    set: (_, key, value) => void (current?.kv ?? denied()).set(key, value),
    remove: (_, key) => void (current?.kv ?? denied()).delete(key),
    keys: (_, prefix, after, limit) => [...(current?.kv ?? denied()).keys()].sort()
      .filter((key) => key.startsWith(prefix) && (after === null || key > after)).slice(0, limit),
    increment(_, key, by) {
      const kv = current?.kv ?? denied();
      const sum = Number(utf8.text(kv.get(key) ?? utf8.bytes('0'))) + by;
      if (!Number.isInteger(sum)) throw refusal('not-a-number');
      kv.set(key, utf8.bytes(String(sum)));
      return sum;
    },
    replace(_, key, expected, value) {
      const kv = current?.kv ?? denied();
      const found = kv.get(key);
      const same = expected === null ? found === undefined : found !== undefined && utf8.text(found) === utf8.text(expected);
      if (same) kv.set(key, value);
      return same;
    },
  },
  secrets: {
    get(name) {
      const secrets = current?.secrets ?? denied();
      if (!(name in secrets)) throw refusal('not-found');
      return { text: secrets[name], revealed: false };
    },
  },
  http: {
    fetch(request) {
      const answer = (current?.http ?? denied)(request);
      const { status = 200, url = request.url, headers = {}, body = '', truncated = false } = answer;
      return { status, url, headers: Object.entries(headers), body: utf8.bytes(body), truncated };
    },
  },
  files: {
    read(path, offset, maxBytes) {
      const found = file(path);
      const end = maxBytes === null ? undefined : offset + maxBytes;
      return { data: found.data.slice(offset, end), stat: statOf(found) };
    },
    write(path, data, expected) {
      const before = (current?.files ?? denied()).get(path);
      if (expected !== null && (!before || statOf(before).version !== expected)) throw refusal('stale');
      const made = { data, version: (before?.version ?? 0) + 1 };
      current.files.set(path, made);
      return statOf(made);
    },
    stat: (path) => statOf(file(path)),
    readDir(path) {
      const prefix = path === '.' || path === '' ? '' : `${path}/`;
      const names = [...(current?.files ?? denied()).keys()].filter((name) => name.startsWith(prefix))
        .map((name) => name.slice(prefix.length).split('/'));
      const kinds = new Map(names.map(([name, ...below]) => [name, below.length > 0 ? 'directory' : 'file']));
      return [...kinds].map(([name, kind]) => ({ name, kind }));
    },
    makeDir: () => void (current?.files ?? denied()),
    remove(path) {
      file(path);
      current.files.delete(path);
    },
  },
  process: {
    run(command) {
      const { exitCode = 0, stdout = '', stderr = '', truncated = false } = (current?.process ?? denied)(command);
      return { exitCode, stdout: utf8.bytes(stdout), stderr: utf8.bytes(stderr), truncated };
    },
  },
  attachments: { all: () => [], read: denied, create: denied },
};

/** Random bytes of this machine. */
export const randomBytes = (count) => randomFillSync(new Uint8Array(count));

const refused = (message, subject) => new ToolError('not-available', message, subject);

/** Calls of other tools. A tool of the fake returns a text, or `{value, structured}`. */
export const toolInvoke = {
  tools: () => Object.keys(current?.tools ?? {}).sort().map((name) => ({ name, description: '', inputSchema: '{}', outputSchema: null })),
  invoke(calls) {
    if (!current?.tools) throw refused(NO_FAKE, 'denied');
    return calls.map(({ name, args }) => {
      const parsed = JSON.parse(args);
      current.invocations.push({ name, args: parsed });
      try {
        if (!(name in current.tools)) throw refused(`no tool \`${name}\``, 'unknown-tool');
        const answer = current.tools[name](parsed);
        const { value, structured = null } = typeof answer === 'string' ? { value: answer } : answer;
        return { tag: 'ok', val: { value, structured: structured === null ? null : JSON.stringify(structured), truncated: false } };
      } catch (error) {
        return { tag: 'err', val: toRecord(error) };
      }
    });
  },
};
