// Formats the result of a tool for a terminal: a list as a table, an object as a record, the result of a command as the
// output and exit code of that command. Programs use `-o json`.
import type { Column, List } from './lists.ts'
import { entryLine } from './log-line.ts'
import { age, clip, coloured, columnsOf, hasColours, oneLine, shortId, widthOf, yaml } from './text.ts'

type Row = Record<string, unknown>
export const formats = ['table', 'wide', 'json', 'yaml', 'name'] as const
export type Format = (typeof formats)[number]
export type Style = { format?: Format; quiet?: boolean; width?: number; colours?: boolean; now_ms?: number }

const isRow = (value: unknown): value is Row =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const isPlain = (value: unknown) => value !== null && value !== undefined && typeof value !== 'object'
/** A list of plain values, such as times or names. */
const isSeries = (value: unknown): value is unknown[] =>
  Array.isArray(value) && value.length > 0 && value.every(isPlain)

const cell = (value: unknown): string => {
  if (value === null || value === undefined || value === '') return '-'
  if (isSeries(value)) return value.map(cell).join(', ')
  return typeof value === 'string' ? value : JSON.stringify(value)
}

const isEmpty = (value: unknown) => value === undefined || value === null || value === ''

const at = (row: Row, paths: string): unknown =>
  paths
    .split('|')
    .map((path) =>
      path.split('.').reduce<unknown>((value, key) => (isRow(value) ? value[key] : undefined), row),
    )
    .find((value) => !isEmpty(value))

function textOf({ path, as }: Column, row: Row, style: Style): string {
  const value = at(row, path)
  if (as === 'milliseconds' && typeof value === 'number') return `${(value / 1000).toFixed(1)}s`
  if (typeof value !== 'string') return cell(value)
  const isWide = style.format === 'wide'
  if (as === 'age') return age(value, style.now_ms)
  if (as === 'id' && !isWide) return shortId(value)
  if (as === 'scope' && !isWide) return value.replace(/[0-9a-f-]{36}/, shortId)
  return value
}

const cellOf = (column: Column, row: Row, style: Style): string => oneLine(textOf(column, row, style)) || '-'

const least = 4
const comfortable = 12

/** Narrows flexible columns first, always the widest one, until the table fits. */
function fittedWidths(natural: number[], columns: Column[], width: number): number[] {
  const widths = [...natural]
  const total = () => widths.reduce((sum, one) => sum + one, 2 * (widths.length - 1))
  const widest = (allowed: (index: number) => boolean) =>
    widths.reduce((best, one, index) => (allowed(index) && one > (widths[best] ?? 0) ? index : best), -1)
  while (total() > width) {
    const flexible = widest((index) => columns[index]!.flexible === true && widths[index]! > comfortable)
    const index = flexible < 0 ? widest((other) => widths[other]! > least) : flexible
    if (index < 0) break
    widths[index]! -= 1
  }
  return widths
}

/** Columns that are empty in every row are left out. */
export function table(rows: Row[], all: Column[], style: Style = {}): string {
  const isWide = style.format === 'wide'
  const columns = all.filter(
    ({ wide, path }) => (isWide || !wide) && rows.some((row) => !isEmpty(at(row, path))),
  )
  const cells = rows.map((row) => columns.map((column) => cellOf(column, row, style)))
  const natural = columns.map(({ title }, index) =>
    Math.max(widthOf(title), ...cells.map((line) => widthOf(line[index]!))),
  )
  const width = isWide ? Number.POSITIVE_INFINITY : (style.width ?? columnsOf())
  const widths = fittedWidths(natural, columns, width)
  const colours = style.colours ?? hasColours()
  const render = (line: string[], body: boolean) =>
    line
      .map((text, index) => {
        const clipped = clip(text, widths[index]!)
        const padded = clipped + ' '.repeat(Math.max(0, widths[index]! - widthOf(clipped)))
        return body && colours && columns[index]!.as === 'status' ? coloured(padded) : padded
      })
      .join('  ')
      .trimEnd()
  return [
    render(
      columns.map(({ title }) => title),
      false,
    ),
    ...cells.map((line) => render(line, true)),
  ].join('\n')
}

/** Every plain field of rows that no declaration describes. */
const guessed = (rows: Row[]): Column[] =>
  [...new Set(rows.flatMap((row) => Object.keys(row)))]
    .filter((key) => rows.some((row) => (isPlain(row[key]) && row[key] !== '') || isSeries(row[key])))
    .map((key) => ({ title: key.replaceAll('_', ' ').toUpperCase(), path: key, flexible: true }))

/** Breaks at spaces only: a long id or URL stays whole, so that it can be copied. */
function wrapped(text: string, width: number, indent: string): string {
  const lines: string[] = []
  for (const word of text.split(' ')) {
    const last = lines.at(-1)
    if (last !== undefined && widthOf(last) + 1 + widthOf(word) <= width)
      lines[lines.length - 1] = `${last} ${word}`
    else lines.push(word)
  }
  return lines.join(`\n${indent}`)
}

function record(row: Row, width: number, indent = ''): string {
  const keys = Math.max(0, ...Object.keys(row).map((key) => key.length))
  const body = `${indent}${' '.repeat(keys)}  `
  return Object.entries(row)
    .map(([key, value]) => {
      if (isRow(value) && Object.keys(value).length > 0)
        return `${indent}${key}\n${record(value, width, `${indent}  `)}`
      if (Array.isArray(value) && value.length > 0 && value.every(isRow))
        return `${indent}${key}\n${table(value, guessed(value), { width: width - indent.length - 2, colours: false }).replaceAll(/^/gm, `${indent}  `)}`
      const text = cell(value)
      if (text.includes('\n')) return `${indent}${key.padEnd(keys)}  \n${text.trimEnd()}`
      return `${indent}${key.padEnd(keys)}  ${wrapped(text, width - body.length, body)}`
    })
    .join('\n')
}

/** The rows of a list. A list in a field that is not the first is a property of an object. */
function rowsOf(result: Row, list: List | undefined): { name: string; rows: Row[] } | undefined {
  const name = list?.rows ?? Object.keys(result)[0] ?? ''
  const rows = result[name]
  return Array.isArray(rows) && rows.every(isRow) ? { name, rows } : undefined
}

/** The full id of each row, or of the object; `by_name` prefers the name. */
function identifiers(result: Row, list: List | undefined, by_name: boolean): string {
  const found = rowsOf(result, list)
  const lines = (found ? found.rows : [result]).flatMap((row) => {
    const key = list?.key ?? Object.keys(row).find((name) => name.endsWith('_id')) ?? ''
    const value = (by_name ? row.name : undefined) ?? row[key]
    return value === undefined || value === null ? [] : [`${oneLine(String(value))}\n`]
  })
  return lines.join('')
}

function outcome(result: Row): { stdout: string; stderr: string; code: number } | undefined {
  if (typeof result.stdout !== 'string' || typeof result.exit_code !== 'number') return undefined
  const notes = [
    result.timed_out === true ? 'oubliette: the command timed out and was killed\n' : '',
    result.truncated === true ? 'oubliette: the output was truncated\n' : '',
  ]
  return { stdout: result.stdout, stderr: `${result.stderr ?? ''}${notes.join('')}`, code: result.exit_code }
}

/** The result of a query: names of columns, and rows of values in the same order. */
type Queried = { columns: string[]; rows: unknown[][]; truncated?: unknown; duration_ms?: unknown }

const isQueried = (result: Row): result is Row & Queried =>
  Array.isArray(result.columns) &&
  result.columns.every((name) => typeof name === 'string') &&
  Array.isArray(result.rows) &&
  result.rows.every(Array.isArray)

/** Null and an empty text look different, and no column is left out. */
const shownValue = (value: unknown) => (value === null ? 'NULL' : value === '' ? "''" : value)

function queried({ columns: names, rows: values, truncated, duration_ms }: Queried, style: Style): string {
  const columns = names.map((title, index) => ({ title, path: String(index), flexible: true as const }))
  const rows = values.map((row) => Object.fromEntries(row.map((value, index) => [index, shownValue(value)])))
  const more = truncated === true ? ', and there are more: use --limit' : ''
  const count = `${rows.length} ${rows.length === 1 ? 'row' : 'rows'} in ${duration_ms} ms${more}`
  return `${rows.length > 0 ? `${table(rows, columns, style)}\n\n` : ''}${count}\n`
}

/** The text to print, and the exit code for the result. */
export function show(
  result: Row,
  list?: List,
  style: Style = {},
): { stdout: string; stderr: string; code: number } {
  const printed = (stdout: string) => ({ stdout, stderr: '', code: 0 })
  if (style.quiet || style.format === 'name') return printed(identifiers(result, list, !style.quiet))
  if (style.format === 'json') return printed(`${JSON.stringify(result, null, 2)}\n`)
  if (style.format === 'yaml') return printed(`${yaml(result)}\n`)
  const ran = outcome(result)
  if (ran) return ran
  if (isQueried(result)) return printed(queried(result, style))
  const width = style.format === 'wide' ? Number.POSITIVE_INFINITY : (style.width ?? columnsOf())
  const found = rowsOf(result, list)
  if (!found) return printed(`${record(result, width)}\n`)
  const { name, rows } = found
  if (list?.lines && style.format !== 'wide')
    return printed(rows.map((row) => `${String(row[list.lines!]).replace(/\n$/, '')}\n`).join(''))
  if (list?.log) {
    // A line is clipped before it is coloured: escape sequences have no width.
    const isWide = style.format === 'wide'
    const line = (row: Row) => (isWide ? entryLine(row, false) : clip(entryLine(row, false), width))
    return printed(rows.map((row) => `${line(row)}\n`).join(''))
  }
  const others = Object.fromEntries(
    Object.entries(result).filter(([key, value]) => key !== name && !isEmpty(value)),
  )
  const parts = [
    rows.length > 0 ? table(rows, list?.columns ?? guessed(rows), style) : `no ${name.replaceAll('_', ' ')}`,
    Object.keys(others).length > 0 ? record(others, width) : '',
  ]
  return printed(`${parts.filter(Boolean).join('\n\n')}\n`)
}
