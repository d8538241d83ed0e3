// A person in a real browser: signs in, watches, decides, and is attacked by another page. Arguments: the folder of the
// npm packages, the program, a folder for the server, and optionally one for screenshots.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import net from 'node:net';
import path from 'node:path';
import readline from 'node:readline';

const [packages, toolbay, folder, shots] = process.argv.slice(2);
const require = createRequire(path.join(packages, 'node_modules/'));
const { chromium } = require('playwright-core');
const axe = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
const TOKEN = 'test';
// Not only those of the views that a person opens first.
const VIEWS = ['/', '/calls', '/calls/1', '/refused', '/pending', '/plugins', '/plugins/text', '/tools', '/tools/text__word_count', '/tools/mcp__evil__show', '/budgets'];

const freePort = () => new Promise((resolve) => {
  const server = net.createServer().listen(0, '127.0.0.1', () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});

// `toolbay serve` over stdio, as an MCP client starts it.
class Server {
  constructor(port) {
    this.origin = `http://127.0.0.1:${port}`;
    this.answers = new Map();
    this.last = 0;
  }

  async start() {
    const at = (name) => path.join(folder, name);
    const args = ['serve', '--config', at('toolbay.toml'), '--plugins', at('plugins'), '--state-dir', at('state'), '--cache-dir', at('cache')];
    this.child = spawn(toolbay, args, { stdio: ['pipe', 'pipe', 'pipe'] });
    readline.createInterface({ input: this.child.stdout }).on('line', (line) => {
      const message = JSON.parse(line);
      this.answers.get(message.id)?.(message.result ?? message);
      this.answers.delete(message.id);
    });
    await new Promise((resolve, reject) => {
      readline.createInterface({ input: this.child.stderr }).on('line', (line) => {
        if (line.includes('operators reach it on')) resolve();
      });
      this.child.on('exit', (code) => reject(new Error(`the server ended with ${code}`)));
    });
    const clientInfo = { name: 'browser-test', version: '1' };
    await this.request('initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo });
    this.write({ method: 'notifications/initialized' });
    return this;
  }

  write(message) {
    this.child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
  }

  request(method, params) {
    const id = ++this.last;
    this.write({ id, method, params });
    return new Promise((resolve) => this.answers.set(id, resolve));
  }

  call(name, args = {}) {
    return this.request('tools/call', { name, arguments: args });
  }

  async end() {
    this.child.removeAllListeners('exit');
    const ended = new Promise((resolve) => this.child.on('exit', resolve));
    this.child.kill('SIGTERM');
    await ended;
  }
}

function writePolicy(port, servers) {
  const upstream = ([name, mode]) => `[mcp.${name}]\ncommand = ["/usr/bin/python3", "-I", "${servers}/server.py", "${mode}", "${name}"]\nfs_read = ["${servers}"]\nsandbox = "best-effort"\n`;
  fs.writeFileSync(path.join(folder, 'toolbay.toml'), `version = 1
workspace = "work"
[admin]
listen = "127.0.0.1:${port}"
tokens = "admin.toml"
[plugins.p.grant]
fs_read = ["$workspace"]
[[rule]]
tool = "text__*"
action = "ask"
${[['slow', 'good'], ['evil', 'markup']].map(upstream).join('')}`);
}

async function signIn(page, origin) {
  await page.goto(origin);
  assert.equal(new URL(page.url()).pathname, '/login');
  await page.getByLabel('Token').fill(TOKEN);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('heading', { name: 'Now' }).waitFor();
}

async function checkAccess(page, what) {
  // In the page's own world, past its content security policy.
  const client = await page.context().newCDPSession(page);
  const run = `${axe}; axe.run(document, { resultTypes: ['violations'] }).then((found) => JSON.stringify(found.violations))`;
  const { result } = await client.send('Runtime.evaluate', { expression: run, awaitPromise: true, returnByValue: true });
  await client.detach();
  const bad = JSON.parse(result.value).filter(({ impact }) => ['serious', 'critical'].includes(impact));
  assert.deepEqual(bad.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).slice(0, 3)}`), [], what);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wide <= 0, `${what}: ${wide} pixels too wide`);
}

async function shoot(page, name) {
  if (shots) await page.screenshot({ path: path.join(shots, `${name}.png`) });
}

async function watchAndCancel(page, server) {
  for (let calls = 0; calls < 40; calls += 1) await server.call('mcp__slow__echo', { text: 'a' });
  await server.call('mcp__slow__fail');
  await page.goto(`${server.origin}/`);
  const running = server.call('mcp__slow__wait', { ms: 25_000 });
  // Without a reload.
  const row = page.getByRole('row', { name: /mcp__slow__wait/ });
  await row.getByRole('button', { name: 'Cancel' }).waitFor();
  await shoot(page, 'now');
  await row.getByRole('button', { name: 'Cancel' }).click();
  assert.equal((await running).isError, true);
}

async function followCalls(page, server) {
  await page.goto(`${server.origin}/calls?text=mcp__slow__pid`);
  await page.getByLabel('Follow').waitFor();
  await page.waitForFunction(() => document.querySelector('#status').textContent === '');
  await server.call('mcp__slow__pid');
  await page.getByRole('link', { name: 'mcp__slow__pid' }).click();
  await page.getByRole('heading', { name: 'Gates' }).waitFor();
}

async function decide(page, server) {
  await page.goto(`${server.origin}/pending`);
  const first = server.call('text__word_count', { text: 'to be' });
  await page.getByRole('button', { name: 'Approve' }).waitFor();
  await shoot(page, 'question');
  await page.getByRole('button', { name: 'Approve' }).click();
  assert.equal((await first).isError, false);
  const second = server.call('text__word_count', { text: 'or not to be' });
  await page.getByLabel('Reason, which the model reads').fill('ask me tomorrow');
  await page.getByRole('button', { name: 'Refuse' }).click();
  assert.match(JSON.stringify(await second), /ask me tomorrow/);
}

async function grantHeldPlugin(page, server) {
  const target = path.join(folder, 'plugins/p.wasm');
  fs.copyFileSync(path.join(folder, 'update.wasm'), `${target}.new`);
  fs.renameSync(`${target}.new`, target);
  const button = page.getByRole('button', { name: 'Grant this version' });
  for (let tries = 0; tries < 30 && !(await button.isVisible()); tries += 1) {
    await page.waitForTimeout(500);
    await page.goto(`${server.origin}/pending`);
  }
  await page.getByText('Compared with the version that runs').waitFor();
  await page.locator('ins', { hasText: 'fs_read $workspace' }).first().waitFor();
  await shoot(page, 'held');
  await checkAccess(page, 'a held plugin');
  await button.click();
  await page.waitForURL('**/plugins/p');
  await page.goto(`${server.origin}/pending`);
  for (let tries = 0; tries < 30 && !(await page.getByText('No plugin waits.').isVisible()); tries += 1) {
    await page.waitForTimeout(500);
    await page.reload();
  }
  await page.getByText('No plugin waits.').waitFor();
}

async function switchAndTry(page, server) {
  await page.goto(`${server.origin}/tools`);
  await page.getByLabel('Name or description').fill('word_count');
  await page.getByRole('button', { name: 'Search' }).click();
  await page.getByRole('link', { name: 'text__word_count' }).click();
  await page.getByLabel('Reason, which callers see').fill('under repair');
  await page.getByRole('button', { name: 'Disable' }).click();
  await page.getByText('under repair').waitFor();
  assert.match(JSON.stringify(await server.call('text__word_count', { text: 'a' })), /under repair/);
  await page.getByRole('button', { name: 'Enable' }).click();
  await page.getByLabel(/^text/).fill('to be or not to be');
  await page.getByRole('button', { name: 'Check only' }).click();
  await page.getByText('It was not run').waitFor();
  await page.getByRole('button', { name: 'Run' }).click();
  await page.locator('#result', { hasText: '"words":6' }).waitFor();
  await shoot(page, 'tool');
}

async function stopAndResume(page, server) {
  await page.goto(`${server.origin}/`);
  await page.getByLabel('Reason, which callers see').fill('incident 7');
  await page.getByRole('button', { name: 'Stop all calls' }).click();
  await page.getByRole('alert').getByText('incident 7').waitFor();
  assert.match(JSON.stringify(await server.call('mcp__slow__echo', { text: 'a' })), /incident 7/);
  await page.getByRole('button', { name: 'Allow calls again' }).click();
  await page.getByRole('button', { name: 'Stop all calls' }).waitFor();
  assert.equal((await server.call('mcp__slow__echo', { text: 'a' })).isError, false);
}

async function useKeyboard(page, server) {
  await page.goto(`${server.origin}/tools`);
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to content');
  for (const name of ['Now', 'Calls']) {
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.textContent), name);
  }
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Calls', exact: true }).waitFor();
}

// Another page on this machine, while the operator is signed in.
async function attack(context, server) {
  const evil = http.createServer((request, response) => {
    response.setHeader('content-type', 'text/html');
    const target = server.origin;
    response.end({
      '/form': `<form method="post" action="${target}/stop"><input name="reason" value="evil"></form><script>document.forms[0].submit()</script>`,
      '/fetch': `<script>for (const credentials of ['include']) for (const mode of ['cors', 'no-cors'])
        fetch('${target}/stop', { method: 'POST', mode, credentials, body: new URLSearchParams({ reason: 'evil' }) }).catch(() => {}).finally(() => { document.title += 'x' })</script>`,
      '/frame': `<iframe src="${target}/" onload="document.title = 'loaded'"></iframe>`,
      '/read': `<script>fetch('${target}/api/v1/log', { credentials: 'include' }).then((r) => r.text()).then((t) => { document.title = t }, () => { document.title = 'refused' })</script>`,
    }[request.url] ?? '');
  });
  await new Promise((resolve) => evil.listen(0, '127.0.0.1', resolve));
  const { port } = evil.address();
  // The same site, another origin; and another site.
  for (const host of ['127.0.0.1', 'evil.example']) {
    const page = await context.newPage();
    await page.goto(`http://${host}:${port}/form`);
    await page.waitForURL(`${server.origin}/stop`);
    await page.goto(`http://${host}:${port}/fetch`);
    await page.waitForFunction(() => document.title === 'xx');
    await page.goto(`http://${host}:${port}/read`);
    await page.waitForFunction(() => document.title === 'refused');
    await page.goto(`http://${host}:${port}/frame`);
    await page.waitForTimeout(500);
    const framed = page.frames()[1];
    assert.ok(framed.url().startsWith('chrome-error:'), framed.url());
    await page.close();
  }
  evil.close();
  const rebound = await context.newPage();
  const response = await rebound.goto(server.origin.replace('127.0.0.1', 'evil.example'));
  assert.equal(response.status(), 403);
  await rebound.close();
  assert.equal((await server.call('mcp__slow__echo', { text: 'a' })).isError, false, 'nothing was stopped');
}

async function restart(page, server) {
  await page.goto(`${server.origin}/`);
  await server.end();
  await page.getByText('The server does not answer').waitFor();
  await server.start();
  await page.getByText('You are signed out').waitFor();
  await page.reload();
  assert.equal(new URL(page.url()).pathname, '/login');
}

const port = await freePort();
writePolicy(port, path.resolve(import.meta.dirname, '../mcp-servers'));
const server = await new Server(port).start();
const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--host-resolver-rules=MAP evil.example 127.0.0.1'],
});
try {
  const context = await browser.newContext({ viewport: { width: 1100, height: 760 } });
  context.setDefaultTimeout(15_000);
  const page = await context.newPage();
  const problems = [];
  page.on('pageerror', (error) => problems.push(String(error)));
  page.on('console', (message) => {
    if (message.type() === 'error' && !message.text().includes('ERR_CONNECTION_REFUSED')) problems.push(message.text());
  });
  await page.goto(`${server.origin}/login`);
  await checkAccess(page, 'the sign-in page');
  await signIn(page, server.origin);
  const steps = { watchAndCancel, followCalls, decide, grantHeldPlugin, switchAndTry, stopAndResume, useKeyboard };
  for (const [name, step] of Object.entries(steps)) {
    await step(page, server);
    console.log(`${name}: done`);
  }
  for (const [scheme, width] of [['light', 1100], ['dark', 1100], ['light', 360]]) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.setViewportSize({ width, height: 760 });
    for (const view of VIEWS) {
      await page.goto(`${server.origin}${view}`);
      assert.notEqual(await page.title(), 'owned', view);
      await checkAccess(page, `${view}, ${scheme}, ${width} pixels`);
    }
    if (scheme === 'dark') {
      await page.goto(`${server.origin}/refused`);
      await shoot(page, 'refused-dark');
    }
  }
  console.log('accessibility: done');
  const plain = await browser.newContext({ javaScriptEnabled: false });
  const without = await plain.newPage();
  await signIn(without, server.origin);
  await without.getByRole('link', { name: 'Calls' }).click();
  await without.getByRole('link', { name: 'mcp__slow__echo' }).first().click();
  await without.getByRole('heading', { name: 'Gates' }).waitFor();
  await plain.close();
  console.log('without script: done');
  await attack(context, server);
  console.log('attack: done');
  await page.setViewportSize({ width: 1100, height: 760 });
  await restart(page, server);
  console.log('restart: done');
  assert.deepEqual(problems, []);
} finally {
  await browser.close();
  await server.end();
}
