// Entries of the server log as lines for a person.
import { oneLine } from './text.ts'

export const clock = (time: unknown): string => {
  const at = new Date(String(time))
  return Number.isNaN(at.getTime()) ? '--:--:--' : at.toTimeString().slice(0, 8)
}

export const paint = (text: string, code: number, colours: boolean) =>
  colours ? `\x1b[${code}m${text}\x1b[0m` : text

const levelColours: Record<string, number> = { debug: 2, warn: 33, error: 31 }

function valueText(value: unknown): string {
  if (typeof value === 'object' && value !== null && 'message' in value) return JSON.stringify(value.message)
  return typeof value === 'string' && /^\S+$/.test(value) ? value : JSON.stringify(value)
}

type Entry = Record<string, unknown>

/** An entry of the log, for a person. */
export function entryLine({ at, level, message, ...fields }: Entry, colours: boolean): string {
  const rest = Object.entries(fields).map(([key, value]) => oneLine(`${key}=${valueText(value)}`))
  const named = paint(oneLine(String(level)).padEnd(5), levelColours[String(level)] ?? 0, colours)
  const said = oneLine(String(message))
  const words = [clock(at), named, said, rest.length > 0 ? paint(rest.join(' '), 2, colours) : '']
  return words.filter(Boolean).join(' ')
}

/** The same of its text. A line that is not JSON is shown as it is. */
export function logLine(line: string, colours: boolean): string {
  try {
    const entry = JSON.parse(line) as Entry
    if (typeof entry === 'object' && entry !== null && typeof entry.message === 'string')
      return entryLine(entry, colours)
  } catch {
    // Shown below.
  }
  return oneLine(line)
}
