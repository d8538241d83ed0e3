// Views.
'use strict';

const { members, query, releaseWith } = require('./bridge.js');

/** The tools that a model sees and may call: a snapshot, made by `Host.view`. */
class View {
  #number;

  constructor(number) {
    this.#number = number;
    releaseWith(this, number);
  }

  get tools() {
    return query('tools', { view: this.#number }).map(members);
  }

  static numberOf(view) {
    if (!(view instanceof View)) throw new TypeError('a view is made by `host.view()`');
    return view.#number;
  }
}

module.exports = { View };
