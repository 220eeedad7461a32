// Structured logs: one JSON object per line on stderr, or a short readable line on a terminal. A Secret prints as
// «redacted», and text that looks like a token is masked before it is written.
import { inspect } from 'node:util'

export const levels = { debug: 10, info: 20, warn: 30, error: 40 } as const
export type Level = keyof typeof levels
export type Fields = Record<string, unknown>

export interface Log {
  debug(message: string, fields?: Fields): void
  info(message: string, fields?: Fields): void
  warn(message: string, fields?: Fields): void
  error(message: string, fields?: Fields): void
  with(fields: Fields): Log
}

const redacted = '«redacted»'

export class Secret {
  readonly #value: string
  constructor(value: string) {
    this.#value = value
  }
  reveal(): string {
    return this.#value
  }
  toString(): string {
    return redacted
  }
  toJSON(): string {
    return redacted
  }
  [inspect.custom](): string {
    return redacted
  }
}

export const mask = (text: string): string => text.replace(/\b(oub[sg]?_)[0-9a-f]{64}\b/g, `$1${redacted}`)

function plain(value: unknown): unknown {
  if (!(value instanceof Error)) return value
  return {
    name: value.name,
    message: value.message,
    stack: value.stack,
    ...(value.cause === undefined ? {} : { cause: plain(value.cause) }),
  }
}

function readable(level: Level, message: string, fields: Fields): string {
  const rest = Object.entries(fields).map(([key, value]) => {
    if (value instanceof Error) return `${key}=${value.stack ?? value.message}`
    return `${key}=${typeof value === 'string' ? value : JSON.stringify(value)}`
  })
  return [new Date().toISOString().slice(11, 23), level.padEnd(5), message, ...rest].join(' ')
}

export function createLog(
  options: {
    level?: Level
    format?: 'json' | 'text'
    write?: (line: string) => void
    /** Gets every line as JSON, whatever the format. */
    keep?: (line: string) => void
  } = {},
  base: Fields = {},
): Log {
  const floor = levels[options.level ?? 'info']
  const format = options.format ?? (process.stderr.isTTY ? 'text' : 'json')
  const write = options.write ?? ((line: string) => void process.stderr.write(line))
  const at =
    (level: Level) =>
    (message: string, fields: Fields = {}) => {
      if (levels[level] < floor) return
      const all = { ...base, ...fields }
      const json = () =>
        mask(
          JSON.stringify({ at: new Date().toISOString(), level, message, ...all }, (_key, value) =>
            plain(value),
          ),
        )
      const line = format === 'json' || options.keep ? json() : ''
      options.keep?.(line)
      write(`${format === 'json' ? line : mask(readable(level, message, all))}\n`)
    }
  return {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    with: (fields) => createLog(options, { ...base, ...fields }),
  }
}
