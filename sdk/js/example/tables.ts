// Queries of CSV files: their columns, and the rows that match.

import { files, inputError, plugin, rendered, tool } from '@toolbay/sdk';
import { markdown, parse, type Table } from './csv.ts';

const path = { type: 'string', description: 'Path of the CSV file, below the workspace.' } as const;
const reads = { fsRead: '$workspace/**', reason: 'reads the file you name' };
const traits = { toolset: 'table', readOnly: true, idempotent: true, closedWorld: true, untrustedOutput: true };

function load(path: string): Table {
  const table = parse(files.readText(path));
  if (table.columns.length === 0) throw inputError(`\`${path}\` is empty`, '/path');
  return table;
}

function indexOf({ columns }: Table, name: string, at: string): number {
  const index = columns.indexOf(name);
  if (index < 0) throw inputError(`there is no column \`${name}\`; there are ${columns.join(', ')}`, at);
  return index;
}

/** Numbers sort by value and before texts, texts by their letters. */
function compare(a: string, b: string): number {
  const [x, y] = [Number(a), Number(b)];
  const [isX, isY] = [a.trim() !== '' && !Number.isNaN(x), b.trim() !== '' && !Number.isNaN(y)];
  if (isX && isY) return x - y;
  return isX === isY ? (a < b ? -1 : Number(a > b)) : isX ? -1 : 1;
}

const HOLDS = {
  equals: (cell: string, value: string) => compare(cell, value) === 0,
  contains: (cell: string, value: string) => cell.toLowerCase().includes(value.toLowerCase()),
  'at-least': (cell: string, value: string) => cell !== '' && compare(cell, value) >= 0,
  'at-most': (cell: string, value: string) => cell !== '' && compare(cell, value) <= 0,
};

const describeTable = tool({
  name: 'describe_table',
  description: 'Tell the columns of a CSV file, how many rows it has, and what its columns hold.',
  ...traits,
  needs: reads,
  input: { path },
  run({ path }) {
    const table = load(path);
    const columns = table.columns.map((name, index) => {
      const cells = table.rows.map((row) => row[index] ?? '').filter((cell) => cell !== '').sort(compare);
      return { name, filled: cells.length, different: new Set(cells).size, least: cells[0] ?? null, most: cells.at(-1) ?? null };
    });
    return { rows: table.rows.length, columns };
  },
});

const queryTable = tool({
  name: 'query_table',
  description: 'Return rows of a CSV file as a Markdown table: those that fit, in an order, with the columns you want.',
  ...traits,
  needs: reads,
  input: {
    path,
    columns: { type: 'array', items: { type: 'string' }, description: 'Only these columns, in this order.', default: [] },
    where: { type: 'string', description: 'Only rows where this column fits.', optional: true },
    is: { type: 'string', enum: ['equals', 'contains', 'at-least', 'at-most'], description: 'How it fits.', default: 'equals' },
    value: { type: 'string', description: 'What it is compared with.', default: '' },
    sort: { type: 'string', description: 'In the order of this column.', optional: true },
    descending: { type: 'boolean', description: 'The largest first.', default: false },
    limit: { type: 'integer', description: 'At most this many rows.', default: 50, minimum: 1, maximum: 1000 },
  },
  run({ path, columns, where, is, value, sort, descending, limit }) {
    const table = load(path);
    let { rows } = table;
    if (where !== undefined) {
      const index = indexOf(table, where, '/where');
      rows = rows.filter((row) => HOLDS[is](row[index] ?? '', value));
    }
    if (sort !== undefined) {
      const index = indexOf(table, sort, '/sort');
      rows = rows.toSorted((a, b) => compare(a[index] ?? '', b[index] ?? '') * (descending ? -1 : 1));
    }
    const picked = columns.length > 0 ? columns.map((name, at) => indexOf(table, name, `/columns/${at}`)) : [...table.columns.keys()];
    const pick = (row: string[]) => picked.map((index) => row[index] ?? '');
    const shown = { columns: pick(table.columns), rows: rows.slice(0, limit).map(pick) };
    const more = rows.length > limit ? `\n\n${rows.length - limit} more rows fit.` : '';
    return rendered(markdown(shown) + more, { ...shown, fitting: rows.length });
  },
});

export default plugin({ tools: [describeTable, queryTable] });
