// Calls of other tools during a call. Each passes the same gates as a call of a model.

import { toolInvoke } from '#invoke';
import { ToolError } from './errors.js';
import { parse, stringify } from './json.js';

/** Lists the callable tools: `[{name, description, inputSchema, outputSchema}]`, with schemas as objects. */
export const tools = () => toolInvoke.tools().map(({ name, description, inputSchema, outputSchema }) => ({
  name, description, inputSchema: parse(inputSchema), outputSchema: optional(outputSchema),
}));

/** Calls a tool: `{value, structured, truncated}`, or throws its error. */
export function call(name, args = {}) {
  const [answer] = callAll([[name, args]]);
  if (answer instanceof ToolError) throw answer;
  return answer;
}

/** Makes calls, `[name, args]`, concurrently. Returns the result or the `ToolError` of each, in order. */
export function callAll(calls) {
  const invocations = calls.map(([name, args = {}]) => ({ name, args: stringify(args) }));
  let answers;
  try {
    answers = toolInvoke.invoke(invocations);
  } catch (error) {
    // Engines wrap the error of an import in their own error.
    const record = error?.payload ?? error;
    throw typeof record?.code === 'string' ? toolError(record) : error;
  }
  return answers.map(({ tag, val }) => (tag === 'err' ? toolError(val) : { ...val, structured: optional(val.structured) }));
}

// The cost of a nested call belongs to that call.
const toolError = ({ code, message, subject }) => new ToolError(code, message, subject ?? null);

const optional = (text) => (text === null || text === undefined ? null : parse(text));
