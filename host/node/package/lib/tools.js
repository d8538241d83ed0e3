// Native tools: functions of the program with a description and a JSON Schema, as in the SDK for plugins.
'use strict';

const { encode, parse } = require('./json.js');
const { any, boolean, count, fields, object, optionTable, smallCount, text, texts } = require('./options.js');

// With the names of the host.
const TRAITS = {
  readOnly: 'read_only', additive: 'additive', idempotent: 'idempotent', closedWorld: 'closed_world',
  alwaysInclude: 'always_include', untrustedOutput: 'untrusted_output', needsApproval: 'needs_approval',
  deferred: 'deferred',
};
const OPTIONS = optionTable({
  name: any, title: text, description: any, input: object, output: object, namespace: text, toolset: text, tags: texts,
  searchHint: text, maxResultChars: smallCount, timeoutMs: count, serial: queue, cacheMs: count, run: any,
  ...Object.fromEntries(Object.keys(TRAITS).map((name) => [name, boolean])),
});
const NAME = /^[a-zA-Z0-9_-]{1,48}$/;

/** A native tool. */
class NativeTool {
  #request;
  #defaults;
  #run;

  constructor(request, defaults, run) {
    this.name = request.name;
    this.description = request.description;
    this.#request = request;
    this.#defaults = defaults;
    this.#run = run;
  }

  /** What the host knows of the tool. */
  static requestOf(tool) {
    if (tool instanceof NativeTool) return tool.#request;
    throw new TypeError('a native tool is made by `tool({ name, description, input, run })`');
  }

  /** Runs a call with the arguments in a JSON text. */
  call(text, context) {
    const args = parse(text);
    for (const [name, value] of this.#defaults) {
      // Each call gets a value of its own. Objects inherit members such as `constructor`.
      if (!Object.hasOwn(args, name)) args[name] = parse(value);
    }
    return this.#run(args, context);
  }
}

/** Describes a native tool. */
function tool(options) {
  const { name, description, input = {}, output, run } = options ?? {};
  const fail = (what) => {
    throw new TypeError(`tool ${JSON.stringify(name ?? '?')}: ${what}`);
  };
  const given = fields('tool', options, OPTIONS);
  if (typeof name !== 'string' || !NAME.test(name)) fail('`name` must be 1 to 48 letters, digits, `_` or `-`');
  if (typeof description !== 'string' || description.trim() === '') {
    fail('`description` is missing: a model cannot choose what it cannot read about');
  }
  if (typeof run !== 'function') fail('`run` must be a function: run(args, context)');
  if (/Generator/.test(run.constructor.name)) {
    fail('`run` must not `yield`: a call has one result; `context.progress` reports what happens before');
  }
  const { schema, defaults } = inputSchema(input, fail);
  const { title, namespace, toolset, search_hint, max_result_chars, timeout_ms, cache_ms, serial } = given;
  const request = {
    name, description: description.trim(), input_schema: schema, title, namespace, toolset, search_hint, max_result_chars,
    timeout_ms, cache_ms, tags: given.tags ?? [],
    output_schema: output === undefined ? undefined : outputSchema(output),
    serial: serial === true ? name : serial || undefined,
    traits: Object.keys(TRAITS).filter((trait) => options[trait] === true).map((trait) => TRAITS[trait]),
  };
  try {
    // Now, so that the error names the tool.
    encode(request);
  } catch (error) {
    fail(error.message);
  }
  return new NativeTool(request, defaults, run.bind(options));
}

/** The name of a queue, or whether the tool has one of its own. */
function queue(value, name) {
  if (typeof value === 'string' || typeof value === 'boolean') return value;
  throw new TypeError(`\`${name}\` is true, false or the name of a queue`);
}

/** The schema of the arguments: complete (`type: 'object'`), or its properties, which are required unless optional. */
function inputSchema(input, fail) {
  const whole = input.type === 'object';
  const properties = {};
  const required = whole ? [...(input.required ?? [])] : [];
  for (const [name, property] of Object.entries(whole ? (input.properties ?? {}) : input)) {
    if (typeof property !== 'object' || property === null) fail(`\`input.${name}\` must be a JSON Schema`);
    const { optional, ...schema } = property;
    if (whole && optional !== undefined) fail(`\`input.${name}.optional\`: a whole schema has \`required\` for that`);
    if (!whole && !optional && !('default' in schema)) required.push(name);
    properties[name] = schema;
  }
  const rest = whole ? input : {};
  const schema = { ...rest, type: 'object', additionalProperties: rest.additionalProperties ?? false, properties };
  if (required.length > 0) schema.required = required;
  const withDefault = Object.entries(properties).filter(([, property]) => property.default !== undefined);
  return { schema, defaults: withDefault.map(([name, property]) => [name, encode(property.default)]) };
}

/** The schema of the structured result. Values that are not objects are wrapped under `result`. */
function outputSchema(output) {
  return output.type === 'object' ? output : { type: 'object', properties: { result: output }, required: ['result'] };
}

module.exports = { NativeTool, tool };
