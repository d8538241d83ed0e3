// Makes calls with the two official clients in JavaScript, and fails if a client refuses an answer.
//
//     node contract.mjs --library sdk|client --era legacy|modern --cases FILE -- COMMAND…
//
// FILE is a JSON list of `{tool, args}`. A client that has listed the tools checks each structured result against the
// tool's output schema, and throws if it does not match or is missing. Prints one JSON object.

import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';

const { values, positionals: [command, ...args] } = parseArgs({
  allowPositionals: true,
  options: { library: { type: 'string' }, era: { type: 'string', default: 'legacy' }, cases: { type: 'string' } },
});

const info = { name: 'toolbay-test', version: '0' };

async function made() {
  const { Client } = await import(values.library === 'sdk' ? '@modelcontextprotocol/sdk/client/index.js' : '@modelcontextprotocol/client');
  const { StdioClientTransport } = await import(
    values.library === 'sdk' ? '@modelcontextprotocol/sdk/client/stdio.js' : '@modelcontextprotocol/client/stdio');
  const options = values.era === 'modern' ? { versionNegotiation: { mode: 'auto' } } : {};
  return { client: new Client(info, options), transport: new StdioClientTransport({ command, args, env: process.env }) };
}

const deadline = setTimeout(() => {
  console.log(JSON.stringify({ library: values.library, ok: false, error: 'it hangs' }));
  process.exit(1);
}, 120_000);

const { client, transport } = await made();
await client.connect(transport);
const cases = JSON.parse(readFileSync(values.cases, 'utf8'));
const { tools } = await client.listTools();
const names = tools.map((tool) => tool.name);
const missing = cases.map(({ tool }) => tool).filter((tool) => !names.includes(tool));
const refused = [];
let structured = 0;
for (const { tool, args } of cases.filter((one) => names.includes(one.tool))) {
  try {
    const result = await client.callTool({ name: tool, arguments: JSON.parse(args) });
    structured += result.structuredContent === undefined ? 0 : 1;
  } catch (error) {
    refused.push(`${tool} ${args}: ${error.message}`);
  }
}
// Without a structured answer, nothing was checked.
const ok = refused.length === 0 && structured > 0;
const checked = tools.filter((tool) => tool.outputSchema).map((tool) => tool.name);
console.log(JSON.stringify({ library: values.library, era: values.era, calls: cases.length, structured, checked, missing, refused, ok }));
await client.close();
clearTimeout(deadline);
process.exitCode = ok ? 0 : 1;
