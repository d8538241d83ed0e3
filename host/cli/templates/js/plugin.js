import { inputError, plugin, tool } from '@toolbay/sdk';

const hello = tool({
  name: 'hello',
  // The description by which a model chooses the tool.
  description: 'Greet somebody.',
  // Claims, not permissions; without any the host assumes the worst.
  readOnly: true, idempotent: true, closedWorld: true,
  // The host checks arguments against this before anything runs.
  input: {
    name: { type: 'string', description: 'Who is greeted.', minLength: 1 },
    marks: { type: 'integer', description: 'Exclamation marks.', default: 1, minimum: 0, maximum: 5 },
  },
  // `toolbay test` tries these.
  examples: [
    { args: { name: 'world', marks: 2 }, value: 'Hello, world!!' },
    { args: { name: ' ' }, error: 'input-invalid' },
  ],
  run({ name, marks }) {
    if (name.trim() === '') throw inputError('the name is blank', '/name');
    return `Hello, ${name}${'!'.repeat(marks)}`;
  },
});

export default plugin({ tools: [hello] });
