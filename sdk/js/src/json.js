// JSON with exact integers. Integers that a number cannot hold become BigInts, and a BigInt is written as an
// integer. Everything else works like `JSON`.

const MAY_BE_LARGE = /\d{16}/;
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const INTEGER = /^-?\d+$/;

/** Reads a JSON text. */
export function parse(text) {
  if (!MAY_BE_LARGE.test(text)) return JSON.parse(text);
  const mark = unusedMark(text);
  const marked = text.replace(TOKENS, (token) =>
    INTEGER.test(token) && !Number.isSafeInteger(Number(token)) ? `"${mark}${token}"` : token);
  const revive = (_, value) =>
    typeof value === 'string' && value.startsWith(mark) ? BigInt(value.slice(mark.length)) : value;
  return JSON.parse(marked, revive);
}

/** Writes a value, or throws a TypeError that names the member that JSON cannot express. */
export function stringify(value) {
  let mark = null;
  const text = JSON.stringify(value, function (key, inner) {
    if (typeof inner === 'bigint') {
      mark ??= unusedMark(JSON.stringify(value, (_, other) => (typeof other === 'bigint' ? 0 : other)));
      return `${mark}${inner}`;
    }
    if (typeof inner === 'number' && !Number.isFinite(inner)) {
      throw new TypeError(`the result holds ${inner}${key === '' ? '' : ` at \`${key}\``}, which JSON has not`);
    }
    if (inner instanceof Map || inner instanceof Set) {
      throw new TypeError(`the result holds a ${inner.constructor.name}, which JSON has not: make it an object or array`);
    }
    return inner;
  });
  if (text === undefined) throw new TypeError(`the result is a ${typeof value}, which JSON has not`);
  return mark === null ? text : text.replace(new RegExp(`"${mark}(-?\\d+)"`, 'g'), '$1');
}

function unusedMark(text) {
  let mark = 'integer:';
  while (text.includes(mark)) mark = `${mark.length}${mark}`;
  return mark;
}
