// Policies.
'use strict';

const fs = require('node:fs');
const path = require('node:path');

const { query } = require('./bridge.js');
const { absolute, fields, optionTable } = require('./options.js');

const BASE = optionTable({ base: absolute });

/** What an operator grants. */
class Policy {
  #source;

  constructor(source) {
    this.#source = source;
  }

  static read(file) {
    const full = absolute(file);
    const text = query('policy', { policy: { file: full } });
    return new Policy({ file: full, text, base: path.dirname(fs.realpathSync(full)) });
  }

  static parse(policy, options) {
    // Without a text and an object, the bridge would make a policy that grants nothing.
    if (policy === undefined || policy === null) throw new TypeError(`a policy is a text or an object, not ${policy}`);
    const { base } = fields('Policy.parse', options, BASE);
    const source = { [typeof policy === 'string' ? 'text' : 'table']: policy, base };
    query('policy', { policy: source });
    return new Policy(source);
  }

  static denyAll(base) {
    return new Policy({ base: absolute(base, 'base') });
  }

  /** What the bridge reads it from. */
  static sourceOf(policy) {
    if (policy instanceof Policy) return policy.#source;
    throw new TypeError('a policy is made by `Policy.read`, `Policy.parse` or `Policy.denyAll`');
  }
}

module.exports = { Policy };
