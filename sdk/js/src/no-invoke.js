// In place of `host-invoke.js` in a plugin whose tools do not declare `invoke`.

export const toolInvoke = {
  tools: () => [],
  invoke() {
    throw { code: 'not-available', message: 'no tool of this plugin declares `invoke`', subject: 'denied' };
  },
};
