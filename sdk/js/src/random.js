// Random numbers of a component: `Math.random` and `crypto` take them from the host, if the running tool was granted
// `random`. The engine's own `Math.random` continues from the state that the build saved, so each call would get the same.

import { host } from '#host';
import { randomBytes } from '#random';
import { notAvailable } from './errors.js';

/** Bytes of one request to the host. */
const CHUNK = 1024;
/** Most bytes of `crypto.getRandomValues`, as the Web Cryptography API has it. */
const MAX_VALUES = 65_536;

/** Stands for code that is no tool: reducers and availability checks. */
export const PURE = Object.freeze({ capabilities: [] });

/** The running tool; null while the module loads. */
let running = null;
/** Whether it was granted random numbers; null until it draws the first. */
let granted = null;
let bytes = new Uint8Array(0);
let used = 0;

/** Runs code of a tool. */
export function during(definition, run) {
  const before = running;
  [running, granted] = [definition, null];
  try {
    return run();
  } finally {
    [running, granted] = [before, null];
  }
}

/** Puts the functions in place. Returns a function that puts the old ones back. */
export function install(target = globalThis) {
  const engine = target.Math.random;
  target.Math.random = function random() {
    // A package may draw while it loads, in the build. What it keeps of that is the same in each call.
    return running === null ? engine() : fraction();
  };
  const [own, web] = [Object.getOwnPropertyDescriptor(target, 'crypto'), target.crypto];
  // Outside of a call, Node has its own.
  const crypto = {
    getRandomValues: (array) => (running === null && web ? web.getRandomValues(array) : getRandomValues(array)),
    randomUUID: () => (running === null && web ? web.randomUUID() : randomUUID()),
  };
  Object.defineProperty(target, 'crypto', { value: crypto, configurable: true, writable: true, enumerable: true });
  return () => {
    target.Math.random = engine;
    if (own) Object.defineProperty(target, 'crypto', own);
    else delete target.crypto;
  };
}

/** A number from 0 to 1 of 53 random bits. */
function fraction() {
  const [high, low] = new Uint32Array(drawn(8, 'Math.random').buffer);
  return (high * 2 ** 21 + (low >>> 11)) / 2 ** 53;
}

function getRandomValues(array) {
  const whole = ArrayBuffer.isView(array) && !(array instanceof DataView) && !/^Float/.test(array.constructor.name);
  if (!whole) throw new TypeError('crypto.getRandomValues fills an array of integers');
  if (array.byteLength > MAX_VALUES) throw new RangeError(`crypto.getRandomValues fills at most ${MAX_VALUES} bytes`);
  const filled = drawn(array.byteLength, 'crypto.getRandomValues');
  new Uint8Array(array.buffer, array.byteOffset, array.byteLength).set(filled);
  return array;
}

function randomUUID() {
  const random = drawn(16, 'crypto.randomUUID');
  // RFC 9562, section 5.4: version 4.
  random[6] = (random[6] & 0x0f) | 0x40;
  random[8] = (random[8] & 0x3f) | 0x80;
  const hex = Array.from(random, (byte) => byte.toString(16).padStart(2, '0')).join('');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}

/** Bytes of the host, as a copy. */
function drawn(count, name) {
  checkGranted(name);
  if (bytes.length - used < count) {
    bytes = Uint8Array.from(randomBytes(Math.max(count, CHUNK)));
    used = 0;
  }
  const found = bytes.slice(used, used + count);
  // Nothing is given out twice, and nothing stays.
  bytes.fill(0, used, used + count);
  used += count;
  return found;
}

function checkGranted(name) {
  granted ??= isGranted(name);
  if (granted) return;
  throw notAvailable(`\`${name}\` needs the capability \`random\`, which is not granted`, 'random');
}

function isGranted(name) {
  if (running === null) {
    throw new Error(`\`${name}\` draws while the module loads, so each call would get the same: draw in \`run\``);
  }
  if (running === PURE) {
    throw new Error(`\`${name}\` is not there for reducers and availability checks, which are functions of what they get`);
  }
  if (!running.capabilities.some(({ kind }) => kind === 'random')) {
    throw new Error(`\`${name}\` needs the capability \`random\`: declare it with \`needs: { random: true }\``);
  }
  // A host that does not say it refuses a tool without its grants, unless they are optional.
  const attribute = host.context.attribute('granted');
  return attribute === null || attribute === undefined || JSON.parse(attribute).includes('random');
}
