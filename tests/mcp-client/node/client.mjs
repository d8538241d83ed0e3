// Lists and calls tools of an MCP server with the two official clients in JavaScript, over stdio or HTTP.
//
//     node client.mjs --library sdk|client --era legacy|modern --tool NAME --args JSON --expect TEXT (--url URL | -- COMMAND…)
//
// Prints one JSON object. Exits with 0 only if the tool was listed, called, and gave what was expected.

import { createRequire } from 'node:module';
import { parseArgs } from 'node:util';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    library: { type: 'string' },
    era: { type: 'string', default: 'legacy' },
    tool: { type: 'string' },
    args: { type: 'string', default: '{}' },
    expect: { type: 'string', default: '' },
    url: { type: 'string' },
  },
});

const info = { name: 'toolbay-test', version: '0' };
const [command, ...args] = positionals;

async function sdk() {
  const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
  const { StdioClientTransport } = await import('@modelcontextprotocol/sdk/client/stdio.js');
  const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
  const transport = values.url
    ? new StreamableHTTPClientTransport(new URL(values.url))
    : new StdioClientTransport({ command, args, env: process.env });
  return { client: new Client(info), transport };
}

async function client() {
  const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
  const { StdioClientTransport } = await import('@modelcontextprotocol/client/stdio');
  const transport = values.url
    ? new StreamableHTTPClientTransport(new URL(values.url))
    : new StdioClientTransport({ command, args, env: process.env });
  const options = values.era === 'modern' ? { versionNegotiation: { mode: 'auto' } } : {};
  return { client: new Client(info, options), transport };
}

function version(library) {
  const require = createRequire(import.meta.url);
  const path = require.resolve.paths(library)[0] + `/@modelcontextprotocol/${library}/package.json`;
  return require(path).version;
}

const deadline = setTimeout(() => {
  console.log(JSON.stringify({ library: values.library, ok: false, error: 'it hangs' }));
  process.exit(1);
}, 60_000);

const { client: connected, transport } = values.library === 'sdk' ? await sdk() : await client();
await connected.connect(transport);
const { tools } = await connected.listTools();
const result = await connected.callTool({ name: values.tool, arguments: JSON.parse(values.args) });
const text = result.content.filter((block) => block.type === 'text').map((block) => block.text).join('\n');
const names = tools.map((tool) => tool.name);
const spoken = connected.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion;
const ok = names.includes(values.tool) && text.includes(values.expect) && !result.isError;
const seen = { client: `@modelcontextprotocol/${values.library} ${version(values.library)}`, era: values.era, spoken };
console.log(JSON.stringify({ ...seen, over: values.url ? 'http' : 'stdio', tools: names, text: text.slice(0, 500), ok }));
await connected.close();
clearTimeout(deadline);
process.exitCode = ok ? 0 : 1;
