// What a program sees, made before it runs. What is used later is kept here: a program may change `JSON` and the like.
(function (host) {
  'use strict';
  const { parse, stringify } = JSON;
  const { Promise: Later, Error: Failure, Proxy: Any, String: Text } = globalThis;
  const apply = Function.prototype.call.bind(Function.prototype.apply);
  const search = RegExp.prototype.exec;
  const WHERE = /script\.js:(\d+)/;
  const MOST_LOGGED = 20000;

  const lines = [];
  let logged = 0;
  let unlogged = 0;
  const shown = (value) => {
    if (typeof value === 'string') return value;
    try {
      return value instanceof Failure ? Text(value) : (stringify(value) ?? Text(value));
    } catch {
      return Text(value);
    }
  };
  const log = (...values) => {
    let line = '';
    for (let i = 0; i < values.length; i++) line += (i > 0 ? ' ' : '') + shown(values[i]);
    if (logged + line.length > MOST_LOGGED) {
      unlogged++;
      return;
    }
    logged += line.length + 1;
    lines[lines.length] = line;
  };

  const lineOf = (error) => {
    try {
      const found = apply(search, WHERE, [Text(error.stack)]);
      return found === null ? null : +found[1];
    } catch {
      return null;
    }
  };

  let waiting = [];
  let calls = 0;
  const call = (name, args = {}) => {
    const error = new Failure();
    const line = lineOf(error);
    return new Later((resolve, reject) => {
      waiting[waiting.length] = { name: Text(name), args: stringify(args) ?? 'null', resolve, reject, line };
    });
  };
  const failed = ({ name, line }, { code, message, subject }) => {
    const error = new Failure(message);
    error.name = 'ToolError';
    error.tool = name;
    error.code = code;
    error.subject = subject;
    error.line = line;
    return error;
  };
  // Makes the calls that wait, at once; tells whether there were any.
  const flush = () => {
    const batch = waiting;
    if (batch.length === 0) return false;
    waiting = [];
    calls += batch.length;
    let asked = '[';
    for (let i = 0; i < batch.length; i++) {
      asked += `${i > 0 ? ',' : ''}[${stringify(batch[i].name)},${stringify(batch[i].args)}]`;
    }
    const { answers, error } = parse(host.invoke(`${asked}]`));
    for (let i = 0; i < batch.length; i++) {
      const answer = error === undefined ? answers[i] : { error };
      if (answer.error === undefined) batch[i].resolve(answer.value);
      else batch[i].reject(failed(batch[i], answer.error));
    }
    return true;
  };

  let known;
  const all = () => (known ??= parse(host.tools()));
  const own = {
    __proto__: null,
    call,
    list: () => {
      const list = [];
      const tools = all();
      for (let i = 0; i < tools.length; i++) {
        list[i] = { name: tools[i].name, description: tools[i].description };
      }
      return list;
    },
    describe: (name) => {
      const tools = all();
      for (let i = 0; i < tools.length; i++) if (tools[i].name === name) return parse(stringify(tools[i]));
      throw new Failure(`there is no tool ${shown(name)} here`);
    },
  };
  const tools = new Any(own, {
    __proto__: null,
    // A promise asks what it is given for `then`.
    get: (_, name) => own[name] ?? (typeof name === 'symbol' || name === 'then' ? undefined : (args) => call(name, args)),
    set: () => false,
  });
  const console = { log, info: log, debug: log, warn: log, error: log };

  const written = () => {
    if (unlogged > 0) lines[lines.length] = `[${unlogged} more lines were written than are kept]`;
    unlogged = 0;
    return lines;
  };
  return {
    flush,
    start: (main, input) => main(tools, parse(input), console),
    finished: (result) => {
      const json = stringify(result) ?? 'null';
      const kept = written();
      let text = '';
      for (let i = 0; i < kept.length; i++) text += `${kept[i]}\n`;
      const silent = json === 'null' && kept.length > 0;
      text += silent ? '' : typeof result === 'string' ? result : json;
      return { text, structured: `{"result":${json},"console":${stringify(kept)},"calls":${calls}}` };
    },
    thrown: (error) => {
      const line = error instanceof Failure ? (error.line ?? lineOf(error)) : null;
      const tool = error instanceof Failure && error.tool !== undefined ? `${shown(error.tool)}: ` : '';
      const message = error instanceof Failure && tool !== '' ? tool + shown(error.message) : shown(error);
      return stringify({ message, line, console: written() });
    },
  };
})
