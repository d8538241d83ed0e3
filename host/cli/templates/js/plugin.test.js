import assert from 'node:assert/strict';
import test from 'node:test';

import { FakeHost } from '@toolbay/sdk/testing';
import plugin from './{{source}}';

test('greets', () => {
  assert.equal(new FakeHost().call(plugin, 'hello', { name: 'world', marks: 2 }).value, 'Hello, world!!');
  assert.throws(() => new FakeHost().call(plugin, 'hello', { name: ' ' }), { code: 'input-invalid', subject: '/name' });
});
