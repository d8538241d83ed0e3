// Options of the program: their names on both sides, and what each may be. An error names the option and what is allowed.
'use strict';

const path = require('node:path');
const { fileURLToPath } = require('node:url');

const MAX_U32 = 2 ** 32 - 1;

/** What an options object may have. `known` has a function that checks or converts each member, by its value and name. */
function optionTable(known) {
  return new Map(Object.entries(known).map(([name, convert]) => [name, { name: snakeCase(name), convert }]));
}

/** The members of an options object with the names of the bridge. An unknown member is a mistake; null is none. */
function fields(what, options, known) {
  if (typeof options !== 'object' || options === null) {
    throw new TypeError(`\`${what}\` takes an object with \`${[...known.keys()].join('`, `')}\``);
  }
  const request = {};
  for (const name of Object.keys(options)) {
    const option = known.get(name);
    if (option === undefined) {
      throw new TypeError(`\`${what}\` has no option \`${name}\`; known are \`${[...known.keys()].join('`, `')}\``);
    }
    const value = options[name];
    if (value !== undefined && value !== null) request[option.name] = option.convert(value, name);
  }
  return request;
}

const snakeCase = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** Any value. */
const any = (value) => value;

function text(value, name) {
  return typeof value === 'string' ? value : refuse(TypeError, name, 'a text', value);
}

function boolean(value, name) {
  return typeof value === 'boolean' ? value : refuse(TypeError, name, 'true or false', value);
}

function callback(value, name) {
  return typeof value === 'function' ? value : refuse(TypeError, name, 'a function', value);
}

function object(value, name) {
  const is = typeof value === 'object' && !Array.isArray(value);
  return is ? value : refuse(TypeError, name, 'an object', value);
}

function count(value, name) {
  return integer(value, name, Number.MAX_SAFE_INTEGER);
}

/** A count that the host has with 32 bits. */
function smallCount(value, name) {
  return integer(value, name, MAX_U32);
}

function integer(value, name, most) {
  const allowed = `an integer from 0 to ${most}`;
  if (typeof value !== 'number') refuse(TypeError, name, allowed, value);
  return Number.isInteger(value) && value >= 0 && value <= most ? value : refuse(RangeError, name, allowed, value);
}

/** An amount of US dollars. */
function amount(value, name) {
  const allowed = 'a finite number from 0';
  if (typeof value !== 'number') refuse(TypeError, name, allowed, value);
  return Number.isFinite(value) && value >= 0 ? value : refuse(RangeError, name, allowed, value);
}

/** A time that a timer of Node can have. */
function timerMs(value, name) {
  const allowed = 'a number of milliseconds from 0 to 2147483647';
  if (typeof value !== 'number') refuse(TypeError, name, allowed, value);
  return value >= 0 && value < 2 ** 31 ? value : refuse(RangeError, name, allowed, value);
}

/** The absolute path of a text or a `file:` URL. */
function absolute(file, name = 'file') {
  if (file instanceof URL) return fileURLToPath(file);
  return typeof file === 'string' ? path.resolve(file) : refuse(TypeError, name, 'a text or a URL', file);
}

function texts(list, name) {
  if (typeof list !== 'object' || typeof list?.[Symbol.iterator] !== 'function') {
    refuse(TypeError, name, 'a list of texts', list);
  }
  return Array.from(list, (value, index) => text(value, `${name}[${index}]`));
}

function textsByName(lists, name) {
  const members = Object.entries(object(lists, name));
  return Object.fromEntries(members.map(([key, list]) => [key, texts(list, `${name}.${key}`)]));
}

function refuse(Kind, name, allowed, value) {
  throw new Kind(`\`${name}\` is ${allowed}, not ${shown(value)}`);
}

function shown(value) {
  if (typeof value === 'string') return `the text ${JSON.stringify(value)}`;
  if (typeof value === 'function' || typeof value === 'symbol') return `a ${typeof value}`;
  if (typeof value !== 'object' || value === null) return String(value);
  return Array.isArray(value) ? 'a list' : 'an object';
}

module.exports = {
  absolute, amount, any, boolean, callback, count, fields, object, optionTable, smallCount, text, texts, textsByName, timerMs,
};
