// CSV as in RFC 4180: quotes, commas and line breaks in quotes, `""` for a quote.

/** A table: the names of its columns, and its rows. */
export interface Table {
  columns: string[];
  rows: string[][];
}

/** Parses a table whose first line names the columns. The most frequent separator of the first line is used. */
export function parse(text: string): Table {
  const head = text.slice(0, text.search(/[\r\n]|$/));
  const count = (separator: string) => head.split(separator).length;
  const separator = [',', ';', '\t'].reduce((best, one) => (count(one) > count(best) ? one : best));
  const cell = new RegExp(`(?:"((?:[^"]|"")*)"|([^${separator}\r\n]*))(${separator}|\r\n|\n|\r|$)`, 'y');
  const rows: string[][] = [];
  let row: string[] = [];
  const all = text.replace(/^\ufeff/, '');
  while (cell.lastIndex < all.length) {
    const found = cell.exec(all);
    if (!found) break;
    row.push(found[1]?.replaceAll('""', '"') ?? found[2] ?? '');
    if (found[3] !== separator) {
      rows.push(row);
      row = [];
    }
  }
  if (row.length > 0) rows.push([...row, '']);
  const [columns = [], ...rest] = rows.filter((cells) => cells.length > 1 || cells[0] !== '');
  return { columns: columns.map((name) => name.trim()), rows: rest };
}

/** A table as Markdown. */
export function markdown({ columns, rows }: Table): string {
  const line = (cells: string[]) => `| ${cells.map((cell) => cell.replace(/\|/g, '\\|').replace(/[\r\n]+/g, ' ')).join(' | ')} |`;
  return [line(columns), line(columns.map(() => '---')), ...rows.map(line)].join('\n');
}
