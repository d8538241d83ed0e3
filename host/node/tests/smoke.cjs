// What each version of Node must do: run with a folder for its files.
'use strict';

const assert = require('node:assert/strict');
const { AsyncLocalStorage } = require('node:async_hooks');
const { Worker, isMainThread, workerData } = require('node:worker_threads');

const user = new AsyncLocalStorage();

async function run({ Host, Policy, tool }) {
  const folder = isMainThread ? process.argv[2] : workerData;
  const host = await Host.start(Policy.denyAll(folder));
  const echo = tool({
    name: 'echo',
    description: 'Repeat a number.',
    input: { n: { type: 'integer' } },
    async run({ n }, { signal, progress }) {
      assert(signal instanceof AbortSignal && typeof progress === 'function');
      await null;
      return { n, user: user.getStore() };
    },
  });
  host.register(echo);
  for (const n of [1, 2n ** 64n]) {
    const calls = () => host.callAll(host.view(), [{ id: '1', tool: 'echo', args: { n } }]);
    const [result] = await user.run('Ada', calls);
    assert.deepEqual(result.output.structured, { n, user: 'Ada' });
  }
  for await (const event of host.stream(host.view(), [{ id: '1', tool: 'none' }])) assert.equal(event.ok, false);
  if (!isMainThread) return;
  const worker = new Worker(__filename, { workerData: folder });
  await new Promise((resolve, reject) => worker.on('exit', resolve).on('error', reject));
  await host.close();
  console.log('done');
}

module.exports = { run };

if (require.main === module || !isMainThread) run(require('toolbay'));
