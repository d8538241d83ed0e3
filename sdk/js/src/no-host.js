// The host of a plugin without tools: none, because reducers are pure.

const nobody = new Proxy({}, {
  get(_, name) {
    throw new TypeError(`a reducer has no host to ask (\`${String(name)}\`)`);
  },
});

export const host = new Proxy({}, { get: () => nobody });
