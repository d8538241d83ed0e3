// Sessions.
'use strict';

const { query, releaseWith } = require('./bridge.js');
const { amount, count, fields, optionTable, text } = require('./options.js');

const OPTIONS = optionTable({
  name: text, id: text, maxCalls: count, maxIdenticalCalls: count, maxCallsPerTurn: count, maxIdenticalCallsPerTurn: count,
  maxCostUsd: amount,
});

/** A conversation: its budgets, approvals and saved outputs. */
class Session {
  #number;

  constructor(options = {}) {
    this.#number = query('session', fields('Session', options, OPTIONS));
    releaseWith(this, this.#number);
  }

  get id() {
    return this.#usage().id;
  }

  get calls() {
    return this.#usage().calls;
  }

  get costUsd() {
    return this.#usage().cost_usd;
  }

  #usage() {
    return query('session_usage', { session: this.#number });
  }

  static numberOf(session) {
    if (!(session instanceof Session)) throw new TypeError('`session` is made by `new Session()`');
    return session.#number;
  }
}

module.exports = { Session };
