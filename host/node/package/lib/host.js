// The host.
'use strict';

const bridge = require('./bridge.js');
const { HostError } = require('./errors.js');
const { encode } = require('./json.js');
const { Batch, ResultPromise, StreamQueue, mailbox } = require('./mailbox.js');
const { executable } = require('./native.js');
const {
  absolute, any, boolean, callback, count, fields, object, optionTable, smallCount, text, texts, textsByName, timerMs,
} = require('./options.js');
const { Policy } = require('./policy.js');
const { Session } = require('./session.js');
const { NativeTool } = require('./tools.js');
const { View } = require('./view.js');

const { members, query } = bridge;

const IDENTITY = optionTable({
  sessionKey: text, platform: text, client: text, agentId: text, personalityId: text, teamId: text, turn: smallCount,
  messageCount: smallCount, traceparent: text, attributes: object,
});
const OPTIONS = optionTable({
  plugins: absolute, stateDir: absolute, cacheDir: absolute, approver: callback, stateWaitMs: count, sourceWaitMs: count,
  callLog: count,
});
const OF_CALLS = {
  session: Session.numberOf, signal: checkedSignal, timeoutMs: timerMs, budgetChars: count, dryRun: boolean,
  identity: (identity) => fields('identity', identity, IDENTITY),
};
const STREAM_OPTIONS = optionTable(OF_CALLS);
const CALL_ALL_OPTIONS = optionTable({ ...OF_CALLS, progress: callback });
const FILTER = optionTable({
  profile: text, allowedTools: texts, allowedPlugins: texts, allowedToolsets: texts, allowedTags: texts,
  allowedMcpServers: texts, allowedMcpTools: textsByName, excludeTools: texts, excludeTags: texts, lazy: boolean,
  toolcallReason: boolean,
});
const CALL = optionTable({ id: text, tool: text, args: any, idempotencyKey: text });
const CALL_LOG = optionTable({ limit: count, tool: text, outcome: text, sessionId: text });

/** A host of plugins and native tools. */
class Host {
  // `number` is null once the host is closed.
  #state;
  #closed = null;

  constructor(number, approver) {
    if (typeof number !== 'number') throw new TypeError('a host is made by `await Host.start(policy, options)`');
    this.#state = { number, approver, tools: new Map() };
  }

  static async start(policy, options = {}) {
    const { approver = null, ...request } = fields('Host.start', options, OPTIONS);
    const number = await mailbox().request({
      op: 'open', policy: Policy.sourceOf(policy), executable: executable(), approver: approver !== null, ...request,
    });
    bridge.closeWithEnvironment(number);
    const host = new Host(number, approver);
    bridge.releaseWith(host, number);
    return host;
  }

  close() {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close() {
    const { number } = this.#state;
    if (number === null) return;
    this.#state.number = null;
    await mailbox().request({ op: 'close', host: number });
    this.#state.tools.clear();
  }

  async callAll(view, calls, options = {}) {
    const { signal, timeout_ms, progress = null, ...settings } = fields('callAll', options, CALL_ALL_OPTIONS);
    const receiver = new ResultPromise(progress);
    const request = { ...this.#calls(view, calls), ...settings, progress: progress !== null };
    signal?.throwIfAborted();
    const number = mailbox().begin(new Batch(this, this.#state, receiver), request, signal, timeout_ms);
    try {
      return await receiver.promise;
    } finally {
      mailbox().end(number);
    }
  }

  stream(view, calls, options = {}) {
    const receiver = new StreamQueue();
    const events = this.#events(receiver, view, calls, options);
    // A generator that waits for an event would return only after it. Streams of Node that are destroyed do so.
    const leave = events.return.bind(events);
    events.return = (value) => {
      receiver.succeed();
      return leave(value);
    };
    return events;
  }

  async *#events(receiver, view, calls, options) {
    const { signal, timeout_ms, ...settings } = fields('stream', options, STREAM_OPTIONS);
    const request = { ...this.#calls(view, calls), ...settings, progress: true, stream: true };
    signal?.throwIfAborted();
    const number = mailbox().begin(new Batch(this, this.#state, receiver), request, signal, timeout_ms);
    try {
      for (let event = await receiver.take(); event !== null; event = await receiver.take()) yield event;
    } finally {
      mailbox().end(number);
    }
  }

  view(filter = {}) {
    return new View(query('view', { host: this.#number(), filter: fields('view', filter, FILTER) }));
  }

  register(...tools) {
    const requests = tools.map(NativeTool.requestOf);
    const added = query('register', { host: this.#number(), tools: requests });
    added.forEach((name, index) => this.#state.tools.set(name, tools[index]));
  }

  unregister(tool) {
    const registered = [...this.#state.tools].find(([, one]) => one === tool);
    const name = typeof tool === 'string' ? tool : (registered?.[0] ?? '');
    return query('unregister', { host: this.#number(), tool: name });
  }

  async loadFile(plugin, file) {
    const request = { op: 'load_file', host: this.#number(), plugin: text(plugin, 'plugin'), file: absolute(file) };
    return mailbox().request(request, { host: this });
  }

  async loadBytes(plugin, component) {
    if (!(component instanceof Uint8Array)) throw new TypeError('`component` is a `Uint8Array`');
    const request = { op: 'load_bytes', host: this.#number(), plugin: text(plugin, 'plugin') };
    return mailbox().request(request, { host: this, payload: component });
  }

  unload(plugin) {
    return query('unload', { host: this.#number(), plugin: text(plugin, 'plugin') });
  }

  async reloadPolicy(policy) {
    const request = { op: 'reload_policy', host: this.#number(), policy: Policy.sourceOf(policy) };
    return mailbox().request(request, { host: this });
  }

  get problems() {
    return query('problems', { host: this.#number() });
  }

  calls(options = {}) {
    return query('calls', { host: this.#number(), query: fields('calls', options, CALL_LOG) }).map(members);
  }

  #number() {
    const { number } = this.#state;
    if (number === null) {
      throw new HostError('closed', 'the host is not open: write `await using host = await Host.start(…)`');
    }
    return number;
  }

  #calls(view, calls) {
    if (typeof calls?.[Symbol.iterator] !== 'function') throw new TypeError('the calls are a list');
    return { op: 'call_all', host: this.#number(), view: View.numberOf(view), calls: Array.from(calls, callRequest) };
  }
}

// Node 20.0 to 20.3 have no such symbol.
if (Symbol.asyncDispose) Host.prototype[Symbol.asyncDispose] = Host.prototype.close;

function callRequest(call) {
  const { args = '{}', ...request } = fields('a call', call, CALL);
  try {
    return { ...request, args: typeof args === 'string' ? args : encode(args) };
  } catch (error) {
    error.message = `the arguments of the call \`${request.id}\`: ${error.message}`;
    throw error;
  }
}

function checkedSignal(signal) {
  if (!(signal instanceof AbortSignal)) throw new TypeError('`signal` is an `AbortSignal`');
  return signal;
}

module.exports = { Host };
