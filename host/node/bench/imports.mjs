// Bar 4: what an import of the package costs, what the first use costs, which loads the native module, and what both
// open and start.
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { median, report } from './support.mjs';

const ROUNDS = 21;
const PROGRAM = fileURLToPath(new URL('imports-program.mjs', import.meta.url));

const starts = Array.from({ length: ROUNDS }, () => {
  const { status, stdout, stderr } = spawnSync(process.execPath, [PROGRAM], { encoding: 'utf8' });
  if (status !== 0) throw new Error(`an import failed: ${stderr}`);
  return JSON.parse(stdout);
});
report({
  import_ms: median(starts.map((start) => start.import_ms)),
  first_use_ms: median(starts.map((start) => start.first_use_ms)),
  side_effects: [...new Set(starts.flatMap((start) => start.side_effects))],
});
