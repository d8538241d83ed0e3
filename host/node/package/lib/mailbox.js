// The mailbox of this environment: answers for its promises, and its native tools, approvers and progress functions.
'use strict';

const { AsyncResource } = require('node:async_hooks');
const { Socket } = require('node:net');
const { isMainThread } = require('node:worker_threads');

const bridge = require('./bridge.js');
const { HostError } = require('./errors.js');
const { log } = require('./log.js');
const { Withdrawal, answerApproval, answerCall, answerUnregistered } = require('./questions.js');
const { CallResult } = require('./results.js');

// Most progress events that wait for a stream, as in the bridge.
const MAX_PROGRESS = 1000;

/** Calls in progress, in the context of their caller. `host` keeps the host open meanwhile. */
class Batch extends AsyncResource {
  constructor(host, state, receiver) {
    super('TOOLBAY_CALLS');
    this.host = host;
    this.state = state;
    this.receiver = receiver;
  }
}

/** The results of calls as a promise, and their progress for a function. */
class ResultPromise {
  constructor(progress) {
    this.showProgress = progress;
    this.promise = new Promise((resolve, reject) => {
      this.succeed = resolve;
      this.fail = reject;
    });
  }

  progress(event) {
    const shown = this.showProgress?.(event);
    // A function with `async` is not awaited.
    if (typeof shown?.then === 'function') shown.then(undefined, logProgressError);
  }

  result() {}
}

/**
 * The events of a stream that its loop has not taken. When more progress waits than may, the oldest is dropped: a person
 * wants the newest.
 */
class StreamQueue {
  #events = [];
  #progress = 0;
  #dropped = 0;
  #end = null;
  #wake = () => {};

  progress(event) {
    if (this.#progress < MAX_PROGRESS) {
      this.#progress++;
    } else {
      this.#events.splice(this.#events.findIndex(({ type }) => type === 'progress'), 1);
      this.#dropped++;
    }
    this.result(event);
  }

  result(event) {
    this.#events.push(event);
    this.#wake();
  }

  succeed() {
    this.#end ??= () => null;
    this.#wake();
  }

  fail(error) {
    this.#end ??= () => {
      throw error;
    };
    this.#wake();
  }

  /** The next event, or null at the end. */
  async take() {
    while (this.#events.length === 0 && this.#end === null) {
      await new Promise((resolve) => {
        this.#wake = resolve;
      });
    }
    if (this.#dropped > 0) {
      log('warning', `${this.#dropped} progress events were dropped: the loop of a stream is too slow`);
      this.#dropped = 0;
    }
    const event = this.#events.shift();
    if (event === undefined) return this.#end();
    if (event.type === 'progress') this.#progress--;
    return event;
  }
}

/** The events of one environment: the main thread, or a worker thread. */
class Mailbox {
  #number;
  #socket;
  #isReferenced = false;
  // By the numbers of their requests.
  #answers = new Map();
  #batches = new Map();
  // By their own numbers.
  #questions = new Map();

  constructor() {
    const [number, fd] = bridge.openMailbox();
    this.#number = number;
    const onread = {
      buffer: new Uint8Array(64),
      callback: () => {
        this.#drain();
        return true;
      },
    };
    this.#socket = new Socket({ fd, readable: true, writable: false, onread });
    this.#socket.on('error', (error) => log('error', 'the socket of the host failed', error));
    // A program ends although a host is open.
    this.#socket.unref();
  }

  /** Submits a request, and resolves to its answer. `host` stays open meanwhile. */
  request(request, { host, payload } = {}) {
    return new Promise((succeed, fail) => {
      const number = bridge.submit(this.#number, request, payload);
      this.#answers.set(number, { succeed, fail, host });
      this.#reference();
    });
  }

  /**
   * Begins calls, and returns their number, with which `end` cancels them. An abort of the signal fails the receiver and
   * cancels the calls. Those that still run after the timeout are cancelled, and the receiver has the results.
   */
  begin(batch, request, signal, timeoutMs) {
    const number = bridge.submit(this.#number, request);
    this.#batches.set(number, batch);
    this.#reference();
    batch.stopListening = whenAborted(signal, () => {
      batch.receiver.fail(signal.reason);
      this.end(number);
    });
    if (timeoutMs !== undefined) batch.timer = setTimeout(() => bridge.cancel(this.#number, number), timeoutMs);
    return number;
  }

  /** Cancels calls that still run. Nobody waits for their results. */
  end(number) {
    if (this.#takeBatch(number) !== undefined) bridge.cancel(this.#number, number);
  }

  #takeBatch(number) {
    const batch = this.#batches.get(number);
    if (batch === undefined) return undefined;
    this.#batches.delete(number);
    batch.stopListening();
    clearTimeout(batch.timer);
    this.#reference();
    return batch;
  }

  /** Keeps the event loop running while a request does. */
  #reference() {
    const isNeeded = this.#answers.size + this.#batches.size > 0;
    if (isNeeded === this.#isReferenced) return;
    this.#isReferenced = isNeeded;
    if (isNeeded) this.#socket.ref();
    else this.#socket.unref();
  }

  /** Handles all events. */
  #drain() {
    let delivery;
    try {
      delivery = bridge.drain(this.#number);
    } catch (cause) {
      // Together they are larger than a text of JavaScript can be.
      const message = `the events of the host are lost, because they cannot be read: ${cause.message}`;
      return this.#failAll(new HostError('internal', message, { cause }));
    }
    const { dropped, events } = delivery;
    if (dropped > 0) log('warning', `${dropped} progress events were dropped: the event loop is too slow`);
    for (const event of events) {
      try {
        this.#handle(event);
      } catch (error) {
        log('error', 'an event of the host was not handled', error);
      }
    }
  }

  /** Fails what waits for an answer, and cancels all calls. */
  #failAll(error) {
    for (const number of this.#answers.keys()) this.#answer(number, (one) => one.fail(error));
    for (const [number, { receiver }] of this.#batches) {
      receiver.fail(error);
      this.end(number);
    }
  }

  #handle(event) {
    switch (event.event) {
      case 'done':
        return this.#answer(event.id, (one) => one.succeed(event.value));
      case 'failed':
        return this.#failed(event.id, bridge.errorOf(event.error));
      case 'results':
        return this.#finish(event.id, (one) => one.succeed(event.results.map((result) => new CallResult(result))));
      case 'result':
        return this.#batches.get(event.id)?.receiver.result(new CallResult(event.result));
      case 'progress':
        return this.#progress(event);
      case 'call':
        return this.#call(event);
      case 'approval':
        return this.#approve(event);
      case 'withdrawn':
        this.#questions.get(event.id)?.withdraw();
        return this.#questions.delete(event.id);
      case 'log':
        return log(event.level, event.message);
    }
  }

  #answer(number, use) {
    const answer = this.#answers.get(number);
    if (answer === undefined) return;
    this.#answers.delete(number);
    this.#reference();
    use(answer);
  }

  #failed(number, error) {
    this.#answer(number, (one) => one.fail(error));
    this.#finish(number, (one) => one.fail(error));
  }

  #finish(number, use) {
    const batch = this.#takeBatch(number);
    if (batch !== undefined) use(batch.receiver);
  }

  #progress({ id, call_id: callId, tool, message, percent, audience }) {
    const batch = this.#batches.get(id);
    const event = { type: 'progress', callId, tool, message, percent, audience };
    try {
      batch?.runInAsyncScope(() => batch.receiver.progress(event));
    } catch (error) {
      logProgressError(error);
    }
  }

  #call(event) {
    const batch = this.#batches.get(event.batch);
    // Without a batch, the call is being cancelled.
    if (batch === undefined) return;
    const tool = batch.state.tools.get(event.tool);
    if (tool === undefined) answerUnregistered(this.#number, event);
    else this.#ask(batch, event, (withdrawal) => answerCall(this.#number, event, tool, withdrawal));
  }

  #approve(event) {
    const batch = this.#batches.get(event.batch);
    if (batch === undefined) return;
    const { approver } = batch.state;
    this.#ask(batch, event, (withdrawal) => answerApproval(this.#number, event, approver, withdrawal));
  }

  /** Lets a function answer, in the context of the caller. */
  #ask(batch, { id }, answer) {
    const withdrawal = new Withdrawal();
    this.#questions.set(id, withdrawal);
    batch.runInAsyncScope(answer, null, withdrawal).finally(() => this.#questions.delete(id));
  }
}

function logProgressError(error) {
  log('error', 'a progress function failed', error);
}

/** Calls a function when a signal is aborted. Returns what ends this. */
function whenAborted(signal, abort) {
  if (signal === undefined) return () => {};
  signal.addEventListener('abort', abort, { once: true });
  return () => signal.removeEventListener('abort', abort);
}

let opened = null;

/** The mailbox of this environment. The first use opens it. */
function mailbox() {
  if (opened === null) {
    opened = new Mailbox();
    // Hosts of worker threads end with their environment. `process.exit` does not end that of the main thread in order.
    if (isMainThread) process.on('exit', bridge.shutDown);
  }
  return opened;
}

module.exports = { Batch, MAX_PROGRESS, ResultPromise, StreamQueue, mailbox };
