// JSON with exact integers; UTF-8 without TextEncoder.

import assert from 'node:assert/strict';
import test from 'node:test';

import { bytes, text } from '../src/bytes.js';
import { parse, stringify } from '../src/json.js';

test('what a number cannot hold is a BigInt', () => {
  assert.deepEqual(parse('{"a": 9007199254740993, "b": 9007199254740991, "c": 1e30}'), { a: 9007199254740993n, b: 9007199254740991, c: 1e30 });
  assert.deepEqual(parse('[-18446744073709551616, "18446744073709551616", "integer:18446744073709551616"]'),
    [-18446744073709551616n, '18446744073709551616', 'integer:18446744073709551616']);
  assert.deepEqual(parse('{"18446744073709551616": 1.00000000000000000001}'), { '18446744073709551616': 1 });
});

test('a BigInt is written as an integer', () => {
  assert.equal(stringify({ a: 2n ** 64n, b: ['integer:5', -1n], c: 0n }), '{"a":18446744073709551616,"b":["integer:5",-1],"c":0}');
  assert.equal(stringify('a"b'), '"a\\"b"');
});

test('texts survive as bytes', () => {
  for (const sample of ['', 'a', 'grüße', '😀 €', '\u0000\u07ff\u0800\uffff\u{10ffff}']) {
    assert.deepEqual(bytes(sample), new Uint8Array(new TextEncoder().encode(sample)));
    assert.equal(text(bytes(sample), true), sample);
  }
  assert.equal(text(bytes('x'.repeat(100_000))).length, 100_000);
});

test('what is not UTF-8 is replaced as everywhere', () => {
  for (const sample of [[0xff], [0xc3], [0xe2, 0x82], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xf0, 0x9f, 0x98, 0x41], [0xf4, 0x90, 0x80, 0x80], [0x61, 0x80, 0x62]]) {
    const data = Uint8Array.from(sample);
    assert.equal(text(data), new TextDecoder().decode(data), sample.join());
    assert.equal(text(data, true), null);
  }
});
