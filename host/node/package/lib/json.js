// JSON with exact integers: those that a number cannot hold are BigInts. What JSON cannot express is refused, with a JSON
// pointer to it.
'use strict';

// Deepest nesting. The host's parser stops at 128.
const MAX_DEPTH = 127;
// A number of so many digits. Most digits of a text are in strings, such as digests.
const MAY_BE_LARGE = /(?:^|[:,[\s])-?\d{16}/;
const WHITE_SPACE = new Set([' ', '\n', '\t', '\r']);
const NUMBER = /-?\d+(\.\d+)?([eE][+-]?\d+)?/y;
const LITERALS = { t: ['true', true], f: ['false', false], n: ['null', null] };

/** Reads a JSON text. `large` makes the value of an integer that a number cannot hold from its digits. */
function parse(text, large = BigInt) {
  return MAY_BE_LARGE.test(text) ? new ExactReader(text, large).read() : JSON.parse(text);
}

/** A value that `JSON.stringify` writes as these digits. Node 20 has none: there it is rounded. */
function exactly(digits) {
  return JSON.rawJSON?.(digits) ?? Number(digits);
}

/** Reads what `JSON.parse` would round. Node has the source of a number in revivers only since version 21. */
class ExactReader {
  #text;
  #large;
  #at = 0;

  constructor(text, large) {
    this.#text = text;
    this.#large = large;
  }

  read() {
    const value = this.#value();
    if (this.#next() !== undefined) this.#fail();
    return value;
  }

  #value() {
    const first = this.#next();
    if (first === '{') return this.#object();
    if (first === '[') return this.#array();
    if (first === '"') return this.#string();
    const literal = LITERALS[first];
    if (literal === undefined) return this.#number();
    if (!this.#text.startsWith(literal[0], this.#at)) this.#fail();
    this.#at += literal[0].length;
    return literal[1];
  }

  #object() {
    const object = {};
    this.#items('}', () => {
      if (this.#next() !== '"') this.#fail();
      const key = this.#string();
      this.#expect(':');
      // An assignment of `__proto__` would set the prototype.
      Object.defineProperty(object, key, { value: this.#value(), writable: true, enumerable: true, configurable: true });
    });
    return object;
  }

  #array() {
    const array = [];
    this.#items(']', () => array.push(this.#value()));
    return array;
  }

  #items(end, read) {
    this.#at++;
    if (this.#next() !== end) {
      read();
      while (this.#next() === ',') {
        this.#at++;
        read();
      }
    }
    this.#expect(end);
  }

  #string() {
    const text = this.#text;
    for (let end = text.indexOf('"', this.#at + 1); end !== -1; end = text.indexOf('"', end + 1)) {
      let slashes = 0;
      while (text[end - 1 - slashes] === '\\') slashes++;
      if (slashes % 2 === 1) continue;
      const string = JSON.parse(text.slice(this.#at, end + 1));
      this.#at = end + 1;
      return string;
    }
    return this.#fail();
  }

  #number() {
    NUMBER.lastIndex = this.#at;
    const match = NUMBER.exec(this.#text) ?? this.#fail();
    this.#at = NUMBER.lastIndex;
    const [digits, fraction, exponent] = match;
    const number = Number(digits);
    const isExact = fraction !== undefined || exponent !== undefined || Number.isSafeInteger(number);
    return isExact ? number : this.#large(digits);
  }

  #expect(character) {
    if (this.#next() !== character) this.#fail();
    this.#at++;
  }

  /** The next character that is no white space. */
  #next() {
    const text = this.#text;
    while (WHITE_SPACE.has(text[this.#at])) this.#at++;
    return text[this.#at];
  }

  #fail() {
    throw new SyntaxError(`no JSON at the character ${this.#at}`);
  }
}

/**
 * Writes a value. Throws a TypeError for what has another type than JSON has, and a RangeError for a value that JSON lacks;
 * both name its JSON pointer. A member that is undefined is left out, as `JSON.stringify` does.
 */
function encode(value) {
  const check = new Check();
  check.value(value);
  return check.hasBigInt ? write(value) : JSON.stringify(value);
}

/** Finds what `JSON.stringify` would change or cannot write. */
class Check {
  hasBigInt = false;
  // The way to the value, and the containers that it is in.
  #steps = [];
  #containers = [];

  value(value) {
    switch (typeof value) {
      case 'string':
        return this.#string(value);
      case 'number':
        return this.#number(value);
      case 'bigint':
        this.hasBigInt = true;
        return;
      case 'boolean':
        return;
      case 'object':
        return value === null ? undefined : this.#object(value);
      default:
        this.#fail(TypeError, `${value === undefined ? '' : 'a '}${typeof value}, which JSON lacks,`);
    }
  }

  #string(text) {
    if (!text.isWellFormed()) this.#fail(RangeError, 'a text with a lone surrogate, which is not Unicode,');
  }

  #number(number) {
    if (!Number.isFinite(number)) this.#fail(RangeError, `${number}, which JSON cannot express,`);
    if (Number.isInteger(number) && !Number.isSafeInteger(number)) {
      this.#fail(RangeError, `the number ${number}, which can be rounded (a BigInt cannot),`);
    }
  }

  #object(object) {
    const value = plain(object, this.#steps.at(-1));
    if (typeof value !== 'object' || value === null) return this.value(value);
    if (this.#containers.includes(value)) this.#fail(TypeError, 'a container that contains itself');
    if (this.#containers.length >= MAX_DEPTH) this.#fail(RangeError, `nested deeper than ${MAX_DEPTH} levels`);
    this.#containers.push(value);
    if (Array.isArray(value)) this.#array(value);
    else this.#members(value);
    this.#containers.pop();
  }

  #array(array) {
    for (let index = 0; index < array.length; index++) {
      this.#steps.push(index);
      this.value(array[index]);
      this.#steps.pop();
    }
  }

  #members(object) {
    // Maps, sets, bytes, errors and promises would become `{}`.
    const kind = Object.prototype.toString.call(object).slice('[object '.length, -1);
    if (kind !== 'Object') this.#fail(TypeError, `a value of type \`${kind}\`, which JSON cannot express,`);
    for (const key of Object.keys(object)) {
      const value = object[key];
      if (value === undefined) continue;
      this.#steps.push(key);
      this.#string(key);
      this.value(value);
      this.#steps.pop();
    }
  }

  #fail(Kind, what) {
    const pointer = this.#steps.map((step) => `/${escaped(step)}`).join('');
    throw new Kind(pointer === '' ? what.replace(/,$/, '') : `${what} at \`${pointer}\``);
  }
}

/** The value that JSON has for an object with `toJSON`, such as a date. Those of bytes would be arrays of numbers. */
function plain(object, key = '') {
  return typeof object.toJSON === 'function' && !ArrayBuffer.isView(object) ? object.toJSON(String(key)) : object;
}

/** Writes a checked value, with BigInts as integers. */
function write(value, key) {
  if (typeof value === 'bigint') return String(value);
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const object = plain(value, key);
  if (typeof object !== 'object' || object === null) return write(object);
  if (Array.isArray(object)) return `[${object.map(write).join(',')}]`;
  const members = Object.entries(object).filter(([, member]) => member !== undefined);
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${write(member, name)}`).join(',')}}`;
}

const escaped = (step) => String(step).replaceAll('~', '~0').replaceAll('/', '~1').toWellFormed();

module.exports = { MAX_DEPTH, encode, exactly, parse };
