import assert from 'node:assert/strict';
import test from 'node:test';

import plugin from './{{source}}';

test('the middle is left out', () => {
  const [{ reduce }] = plugin.reducers;
  const lines = Array.from({ length: 100 }, (_, index) => `line ${index}`);
  assert.equal(reduce({ value: lines.slice(0, 40).join('\n') }), null);
  assert.match(reduce({ value: lines.join('\n') }), /line 19\n\[60 lines left out\]\nline 80/);
});
