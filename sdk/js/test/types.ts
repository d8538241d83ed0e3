// Compile-time tests of the types.

import { kv, plugin, tool } from '@toolbay/sdk';

const made = tool({
  name: 'typed',
  description: 'T.',
  needs: [{ kv: ['plugin'], optional: true }],
  input: {
    text: { type: 'string' },
    count: { type: 'integer', default: 1 },
    mode: { type: 'string', enum: ['fast', 'slow'] },
    list: { type: 'array', items: { type: 'number' }, optional: true },
    place: { type: 'object', properties: { name: { type: 'string' } } },
  },
  run({ text, count, mode, list, place }, call) {
    const shown: string = text + count.toFixed() + place.name.trim();
    const fast: 'fast' | 'slow' = mode;
    const sum: number = (list ?? []).reduce((a, b) => a + b, 0);
    call.progress('x', sum);
    // @ts-expect-error: may be missing
    list.length;
    // @ts-expect-error: no such scope
    kv.get('global', shown);
    return fast;
  },
});

// @ts-expect-error: no description
tool({ name: 'x', run: () => '' });
// @ts-expect-error: no such option
tool({ name: 'x', description: 'X.', readonly: true, run: () => '' });

export default plugin({ tools: [made] });
