// In place of `host-random.js` in a plugin whose tools do not declare `random`.

export function randomBytes() {
  throw new Error('no tool of this plugin declares `random`');
}
