// Colours, and text of a droid in the lines of this program. What a droid chooses (titles, commands, paths, reasons) is shown
// with its control characters made visible, so that it can neither control the terminal nor hide a part of itself.
import { clip, widthOf } from '../../tool-command/output/text.ts'

const codes = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33, cyan: 36 } as const
export type Paint = Record<keyof typeof codes, (text: string) => string>

export function createPaint(colours: boolean): Paint {
  const paint = (code: number) => (text: string) => (colours && text ? `\x1b[${code}m${text}\x1b[0m` : text)
  return Object.fromEntries(Object.entries(codes).map(([name, code]) => [name, paint(code)])) as Paint
}

/** Enough for every line that is shown; the rest of a longer text is not looked at. */
const most_characters = 8_000

const pictured = (character: string): string => {
  const code = character.codePointAt(0)!
  if (code < 0x20) return String.fromCodePoint(0x2400 + code)
  return code === 0x7f ? '␡' : `\\u${code.toString(16).padStart(4, '0')}`
}

/** Control characters, and those that change the order or the place of what follows, as visible ones. */
export const visible = (text: string): string =>
  text
    .slice(0, most_characters)
    .replaceAll(/[\p{Cc}\p{Zl}\p{Zp}\u202a-\u202e\u2066-\u2069\u200b\u2060\ufeff]/gu, pictured)

const textOf = (value: unknown): string =>
  typeof value === 'string' ? value : value === undefined || value === null ? '' : JSON.stringify(value)

/** One visible line, at most `columns` wide. */
export const inline = (value: unknown, columns: number): string =>
  clip(
    visible(
      textOf(value)
        .slice(0, most_characters)
        .trim()
        .replaceAll(/[ \t]*\r?\n\s*/g, ' ⏎ ')
        .replaceAll('\t', ' '),
    ),
    columns,
  )

/** One line with its indentation, at most `columns` wide. */
export const exact = (line: string, columns: number): string =>
  clip(visible(line.slice(0, most_characters).trimEnd().replaceAll('\t', '  ')), columns)

/** Lines of at most `columns`, and how many are left out beyond `rows`. */
export function block(text: string, columns: number, rows: number): { lines: string[]; more: number } {
  const lines = text
    .slice(0, most_characters * 4)
    .replace(/\s+$/, '')
    .split(/\r?\n/)
    .flatMap((line) => wrap(visible(line.replaceAll('\t', '  ')), columns))
  return { lines: lines.slice(0, rows), more: Math.max(0, lines.length - rows) }
}

/** Rows of a line without control characters, broken where a terminal would break it. */
export function wrap(line: string, columns: number): string[] {
  const rows: string[] = []
  let row = ''
  let used = 0
  for (const character of line) {
    const width = widthOf(character)
    if (used + width > columns && row !== '') {
      rows.push(row)
      row = ''
      used = 0
    }
    row += character
    used += width
  }
  return [...rows, row]
}

/** As `wrap`, but between words where that is possible. */
export function wrapWords(line: string, columns: number): string[] {
  const rows: string[] = []
  let rest = line
  for (;;) {
    const [row = '', ...more] = wrap(rest, columns)
    if (more.length === 0) return [...rows, rest]
    const space = row.lastIndexOf(' ')
    // A space at the end of the row is dropped with the break.
    const whole = rest[row.length] === ' ' ? row.length : space > columns / 2 ? space : -1
    rows.push(whole === -1 ? row : row.slice(0, whole))
    rest = whole === -1 ? rest.slice(row.length) : rest.slice(whole + 1)
  }
}

export function duration(ms: number): string {
  if (!(ms >= 0)) return '0s'
  if (ms < 9_950) return `${(ms / 1000).toFixed(1)}s`
  const seconds = Math.round(ms / 1000)
  if (seconds < 60) return `${seconds}s`
  const minutes = Math.floor(seconds / 60)
  if (minutes < 60) return `${minutes}m ${seconds % 60}s`
  return `${Math.floor(minutes / 60)}h ${minutes % 60}m`
}
