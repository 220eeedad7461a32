// Formats the result of a tool for a terminal: a list as a table, an object as a record, the result of a command as the
// output and exit code of that command. Programs use `--json`.
type Row = Record<string, unknown>

const isRow = (value: unknown): value is Row =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const isPlain = (value: unknown) => value !== null && value !== undefined && typeof value !== 'object'
/** A list of plain values, such as times or names. */
const isSeries = (value: unknown): value is unknown[] =>
  Array.isArray(value) && value.length > 0 && value.every(isPlain)

const cell = (value: unknown): string => {
  if (value === null || value === undefined) return '-'
  if (isSeries(value)) return value.map(cell).join(', ')
  return typeof value === 'string' ? value : JSON.stringify(value)
}

// The last column is not clipped: no column follows it.
const clipped = (text: string, width: number, last: boolean): string =>
  last || text.length <= width ? text.padEnd(width) : `${text.slice(0, width - 1)}…`

function table(rows: Row[]): string {
  // Nested values, and columns that are empty in every row, are shown by --json only.
  const flat = (value: unknown) => (isPlain(value) && value !== '') || isSeries(value)
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))].filter((column) =>
    rows.some((row) => flat(row[column])),
  )
  const lines = [columns, ...rows.map((row) => columns.map((column) => cell(row[column]).split('\n')[0]!))]
  const widths = columns.map((_, at) => Math.min(60, Math.max(...lines.map((line) => line[at]!.length))))
  return lines
    .map((line) =>
      line
        .map((text, at) => clipped(text, widths[at]!, at === columns.length - 1))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
}

function record(row: Row, indent = ''): string {
  const width = Math.max(0, ...Object.keys(row).map((key) => key.length))
  return Object.entries(row)
    .map(([key, value]) => {
      if (isRow(value) && Object.keys(value).length > 0)
        return `${indent}${key}\n${record(value, `${indent}  `)}`
      const text = cell(value)
      const body = text.includes('\n') ? `\n${text.trimEnd()}` : text
      return `${indent}${key.padEnd(width)}  ${body}`
    })
    .join('\n')
}

/** The text to print, and the exit code for the result. */
export function show(result: Row): { stdout: string; stderr: string; code: number } {
  if (typeof result.stdout === 'string' && typeof result.exit_code === 'number') {
    const notes = [
      result.timed_out === true ? 'oubliette: the command timed out and was killed\n' : '',
      result.truncated === true ? 'oubliette: the output was truncated\n' : '',
    ]
    return {
      stdout: result.stdout,
      stderr: `${result.stderr ?? ''}${notes.join('')}`,
      code: result.exit_code,
    }
  }
  // A list result has its rows in the first field. A list in a later field is a property of an object.
  const [name = '', rows] = Object.entries(result)[0] ?? []
  if (!Array.isArray(rows) || !rows.every(isRow))
    return { stdout: `${record(result)}\n`, stderr: '', code: 0 }
  const others = Object.fromEntries(
    Object.entries(result).filter(([key, value]) => key !== name && value !== null && value !== undefined),
  )
  const parts = [
    rows.length > 0 ? table(rows) : `no ${name.replaceAll('_', ' ')}`,
    Object.keys(others).length > 0 ? record(others) : '',
  ]
  return { stdout: `${parts.filter(Boolean).join('\n\n')}\n`, stderr: '', code: 0 }
}
