// UTF-8, for an engine without TextEncoder.

/** The bytes of a text. Bytes are unchanged. */
export function bytes(data) {
  if (data instanceof Uint8Array) return data;
  if (Array.isArray(data)) return Uint8Array.from(data);
  if (typeof data !== 'string') throw new TypeError('data must be a string or a Uint8Array');
  const out = [];
  for (const character of data.toWellFormed?.() ?? data) {
    const code = character.codePointAt(0);
    if (code < 0x80) out.push(code);
    else if (code < 0x800) out.push(0xc0 | (code >> 6), 0x80 | (code & 63));
    else if (code < 0x10000) out.push(0xe0 | (code >> 12), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63));
    else out.push(0xf0 | (code >> 18), 0x80 | ((code >> 12) & 63), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63));
  }
  return Uint8Array.from(out);
}

/** The text of bytes. Invalid UTF-8 is replaced or, with `strict`, gives null. */
export function text(data, strict = false) {
  const parts = [];
  let chunk = [];
  for (let at = 0; at < data.length;) {
    const [code, length] = character(data, at);
    if (code < 0 && strict) return null;
    chunk.push(code < 0 ? 0xfffd : code);
    at += length;
    if (chunk.length === 4096) {
      parts.push(String.fromCodePoint(...chunk));
      chunk = [];
    }
  }
  parts.push(String.fromCodePoint(...chunk));
  return parts.join('');
}

/** The character at a position and its length; for invalid bytes -1 and the length to replace. */
function character(data, at) {
  const first = data[at];
  if (first < 0x80) return [first, 1];
  const length = first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xf0 && first < 0xf5 ? 4 : 0;
  if (length === 0) return [-1, 1];
  let code = first & (0x7f >> length);
  for (let next = 1; next < length; next++) {
    const byte = data[at + next];
    if (byte === undefined || (byte & 0xc0) !== 0x80) return [-1, next];
    code = (code << 6) | (byte & 63);
    // Overlong, half of a surrogate pair, or beyond Unicode: detected at the second byte.
    if (next === 1 && ((first === 0xe0 && byte < 0xa0) || (first === 0xed && byte > 0x9f)
      || (first === 0xf0 && byte < 0x90) || (first === 0xf4 && byte > 0x8f))) return [-1, 1];
  }
  return [code, length];
}
