import { plugin, reducer, ToolError } from '@toolbay/sdk';

const LINES = 20;

const ends = reducer({
  // The tool whose results it takes, by its full name if it is another plugin's.
  tool: 'shell__terminal',
  description: 'Keeps the first and last lines of a long result.',
  // Pure: it has no host to ask. Null leaves the result as it is.
  reduce(result) {
    if (result instanceof ToolError) return null;
    const lines = result.value.split('\n');
    if (lines.length <= 2 * LINES) return null;
    return [...lines.slice(0, LINES), `[${lines.length - 2 * LINES} lines left out]`, ...lines.slice(-LINES)].join('\n');
  },
});

export default plugin({ reducers: [ends] });
