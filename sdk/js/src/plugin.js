// Tools, reducers, and the exports made of them.

import { KINDS, KV_SCOPES, NAME, SWITCHES, TRAITS } from './contract.js';
import { notAvailable, toRecord as errorRecord, inputError, isOutOfMemory, ToolError } from './errors.js';
import { toRecord as outputRecord, Output } from './output.js';
import { parse, stringify } from './json.js';
import * as context from './context.js';
import * as random from './random.js';

const OPTIONS = ['name', 'title', 'description', 'input', 'output', 'toolset', 'tags', 'maxResultChars', 'timeoutMs', 'needs', 'examples', 'meta', 'run'];

/** Describes a tool. A mistake is an error at build time. */
export function tool(options) {
  const fail = (what) => {
    throw new TypeError(`tool ${JSON.stringify(options?.name ?? '?')}: ${what}`);
  };
  if (typeof options !== 'object' || options === null) fail('write tool({ name, description, input, run })');
  for (const key of Object.keys(options)) {
    if (!OPTIONS.includes(key) && !TRAITS.includes(key)) {
      fail(`unknown option \`${key}\`; known are \`${[...OPTIONS, ...TRAITS].join('`, `')}\``);
    }
  }
  if (!NAME.test(options.name ?? '')) fail('`name` must be 1 to 48 letters, digits, `_` or `-`');
  if (typeof options.description !== 'string' || options.description.trim() === '') {
    fail('`description` is missing: a model cannot choose what it cannot read about');
  }
  if (typeof options.tags === 'string') fail('`tags` is a list, not a text');
  // A claim such as `needsApproval: 1` would not count.
  const unclear = TRAITS.find((name) => !['undefined', 'boolean'].includes(typeof options[name]));
  if (unclear !== undefined) fail(`\`${unclear}\` is true or false`);
  if (typeof options.run !== 'function') fail('`run` must be a function: run(args)');
  if (options.run.constructor.name === 'AsyncFunction') {
    fail('`run` must not be `async`: calls of the host are not asynchronous here, so write them without `await`');
  }
  const input = inputSchema(options.input ?? {}, fail);
  const meta = options.examples === undefined ? options.meta : { ...options.meta, examples: options.examples };
  const definition = {
    name: options.name,
    title: options.title ?? null,
    description: options.description.trim(),
    inputSchema: stringify(input.schema),
    outputSchema: options.output === undefined ? null : stringify(outputSchema(options.output)),
    toolset: options.toolset ?? null,
    tags: [...(options.tags ?? [])],
    traits: Object.fromEntries(TRAITS.map((name) => [name, options[name] === true])),
    maxResultChars: options.maxResultChars ?? null,
    timeoutMs: options.timeoutMs ?? null,
    capabilities: capabilities(options.needs ?? [], fail),
    meta: meta === undefined ? null : stringify(meta),
  };
  return Object.freeze({ definition, defaults: input.defaults, run: options.run });
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
  const defaults = Object.entries(properties).filter(([, property]) => 'default' in property)
    .map(([name, property]) => [name, property.default]);
  return { schema, defaults };
}

/** The schema of the structured result. Values that are not objects are wrapped under `result`. */
function outputSchema(output) {
  return output.type === 'object' ? output : { type: 'object', properties: { result: output }, required: ['result'] };
}

function capabilities(needs, fail) {
  return [needs].flat().flatMap(({ optional = false, reason = null, ...kinds }) =>
    Object.entries(kinds).flatMap(([key, targets]) => {
      const kind = KINDS[key] ?? fail(`unknown need \`${key}\`; known are \`${Object.keys(KINDS).join('`, `')}\``);
      if (key in SWITCHES) {
        if (targets !== true) fail(`\`${key}\` has no target: write \`${key}: true\``);
        return [{ kind, target: SWITCHES[key], optional, reason }];
      }
      return [targets].flat().map((target) => {
        if (kind === 'kv' && !KV_SCOPES.includes(target)) {
          fail(`unknown kv scope \`${target}\`; known are \`${KV_SCOPES.join('`, `')}\``);
        }
        return { kind, target, optional, reason };
      });
    }));
}

/** Describes a reducer, which shortens results of one tool. `reduce` returns an output, a text, or nothing. */
export function reducer({ tool: toolName, description, reduce }) {
  if (typeof toolName !== 'string' || typeof reduce !== 'function') {
    throw new TypeError('write reducer({ tool: "name", description, reduce(result, context) })');
  }
  return Object.freeze({ definition: { toolName, description: description ?? null }, reduce });
}

/** Creates a plugin, the default export of the module. */
export function plugin({ tools = [], reducers = [], available = null, reusable = false }) {
  const names = new Set();
  for (const { definition } of tools) {
    if (names.has(definition.name)) throw new TypeError(`two tools have the name ${JSON.stringify(definition.name)}`);
    names.add(definition.name);
  }
  if (tools.length + reducers.length === 0) throw new TypeError('the plugin has no tools and no reducers');
  return Object.freeze({ tools: [...tools], reducers: [...reducers], available, reusable: reusable === true });
}

/** The exports of the contract by interface. The world of a component selects from them. */
export function exported(made, about) {
  return {
    tools: {
      listTools: () => made.tools.map(({ definition }) => definition),
      call: (name, args) => entered(() => call(made, name, args)),
    },
    reducers: {
      listReducers: () => made.reducers.map(({ definition }) => definition),
      reduce: (input, ctx) => reduce(made, input, ctx),
    },
    availability: { check: (name) => check(made, name) },
    about: { describe: () => (made.reusable ? { ...about, meta: '{"reusable":true}' } : about) },
  };
}

function call(made, name, args) {
  const found = made.tools.find(({ definition }) => definition.name === name);
  if (!found) throw notAvailable(`no tool \`${name}\` in this plugin`, 'unknown-tool');
  return outputRecord(random.during(found.definition, () => found.run(withDefaults(found, read(args)), context)));
}

function read(args) {
  try {
    return parse(args);
  } catch (error) {
    throw inputError(`invalid arguments: ${error.message}`);
  }
}

function withDefaults({ defaults }, args) {
  for (const [name, value] of defaults) {
    if (args[name] === undefined) args[name] = typeof value === 'object' ? structured(value) : value;
  }
  return args;
}

const structured = (value) => parse(stringify(value));

/** An exception that is not a record of the contract ends the instance, so only intended ones pass. */
function entered(run) {
  try {
    return run();
  } catch (error) {
    if (isOutOfMemory(error)) throw error;
    // The stack trace, for the operator's log.
    if (error instanceof Error && !(error instanceof ToolError)) globalThis.console?.error(`${error}\n${error.stack}`);
    throw errorRecord(error);
  }
}

function check(made, name) {
  const reason = random.during(random.PURE, () => made.available?.(name));
  if (typeof reason === 'string') throw reason;
}

/** A reducer gets `{value, structured, …}` or a ToolError, and keeps a result that it cannot shorten. */
function reduce(made, input, ctx) {
  const found = made.reducers.find(({ definition }) => definition.toolName === ctx.toolName);
  const result = input.tag === 'ok' ? fromOutput(input.val) : fromError(input.val);
  const shorter = random.during(random.PURE, () => found?.reduce(result, { ...ctx, args: parse(ctx.args) }));
  if (shorter === undefined || shorter === null) return null;
  if (shorter instanceof ToolError) return { tag: 'err', val: errorRecord(shorter) };
  if (typeof shorter === 'string') return { tag: 'ok', val: { ...(input.tag === 'ok' ? input.val : outputRecord('')), value: shorter } };
  return { tag: 'ok', val: outputRecord(shorter) };
}

function fromOutput({ value, structured: text, content, costUsd, meta }) {
  const output = new Output(value);
  if (text !== null && text !== undefined) output.data = parse(text);
  output.content = content;
  output.costUsd = costUsd ?? null;
  output.meta = meta === null || meta === undefined ? null : parse(meta);
  return output;
}

const fromError = ({ code, message, subject, costUsd }) => new ToolError(code, message, subject, { costUsd });
