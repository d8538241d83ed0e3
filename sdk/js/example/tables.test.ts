// Tests of the tools with a fake host.

import assert from 'node:assert/strict';
import test from 'node:test';

import { FakeHost } from '@toolbay/sdk/testing';
import { markdown, parse } from './csv.ts';
import plugin from './tables.ts';

const CITIES = 'city,people,note\nBern,134000,"Aare, ""old"""\nBasel,175000,\nGenf,203000,"a\nb"\n';
const query = (args: object, files: Record<string, string> = { 'c.csv': CITIES }) => new FakeHost({ files }).call(plugin, 'query_table', { path: 'c.csv', ...args });

test('cells are read as RFC 4180 has them', () => {
  assert.deepEqual(parse(CITIES).rows, [['Bern', '134000', 'Aare, "old"'], ['Basel', '175000', ''], ['Genf', '203000', 'a\nb']]);
  assert.deepEqual(parse('\ufeffa;b\r\n1;2'), { columns: ['a', 'b'], rows: [['1', '2']] });
  assert.deepEqual(parse('a,b\n1,'), { columns: ['a', 'b'], rows: [['1', '']] });
  assert.deepEqual(parse(''), { columns: [], rows: [] });
  assert.equal(markdown({ columns: ['a'], rows: [['x|y\nz']] }), '| a |\n| --- |\n| x\\|y z |');
});

test('rows that fit come in an order', () => {
  const { value, structured } = query({ where: 'people', is: 'at-least', value: '150000', sort: 'people', descending: true, columns: ['city'] });
  assert.equal(value, '| city |\n| --- |\n| Genf |\n| Basel |');
  assert.deepEqual(structured, { columns: ['city'], rows: [['Genf'], ['Basel']], fitting: 2 });
  assert.match(query({ limit: 1 }).value, /2 more rows fit/);
  assert.equal(query({ where: 'note', is: 'contains', value: 'OLD' }).structured.fitting, 1);
});

test('a column that there is not is the model\'s fault', () => {
  assert.throws(() => query({ sort: 'size' }), { code: 'input-invalid', subject: '/sort', message: 'there is no column `size`; there are city, people, note' });
  assert.throws(() => query({ columns: ['city', 'x'] }), { subject: '/columns/1' });
  assert.throws(() => query({}, { 'c.csv': '' }), { code: 'input-invalid', subject: '/path' });
  assert.throws(() => query({}, {}), { code: 'execution-failed', subject: 'not-found' });
});

test('a table is described', () => {
  const { structured } = new FakeHost({ files: { 'c.csv': CITIES } }).call(plugin, 'describe_table', { path: 'c.csv' });
  assert.deepEqual([structured.rows, structured.columns[1]], [3, { name: 'people', filled: 3, different: 3, least: '134000', most: '203000' }]);
  assert.deepEqual(structured.columns[2].filled, 2);
});
