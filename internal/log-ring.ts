// The last lines of the structured log, in memory, for operators who look into the running server. The same lines that go to
// stderr: masked in the same way, and with what libraries print to the console.
import { inspect } from 'node:util'
import { type Level, type Log, levels, mask } from './log.ts'

export type LogEntry = { at: string; level: Level; message: string; [field: string]: unknown }
export type LogFilter = {
  level?: Level
  grep?: string
  since?: string
  session_id?: string
  request_id?: string
  limit: number
}

export interface LogRing {
  /** `line` is one JSON object, as it is written to stderr. */
  add(line: string): void
  /** Oldest first, the newest `limit` of those that match. */
  read(filter: LogFilter): { entries: LogEntry[]; dropped: number }
}

/** Longer lines (stack traces of nested causes) are cut: the memory of the ring is bounded. */
const longestLine = 8_192

export function createLogRing(size: number): LogRing {
  const lines: string[] = []
  let next = 0
  let dropped = 0

  const inOrder = () => [...lines.slice(next), ...lines.slice(0, next)]

  function parse(line: string): LogEntry {
    try {
      return JSON.parse(line) as LogEntry
    } catch {
      // A line that was cut: what is left of it is shown as text.
      const found = /^\{"at":"([^"]*)","level":"(debug|info|warn|error)","message":"/.exec(line)
      return {
        at: found?.[1] ?? '',
        level: (found?.[2] as Level) ?? 'info',
        message: line.slice(found?.[0].length ?? 0),
        truncated: true,
      }
    }
  }

  return {
    add(line) {
      const kept = line.length > longestLine ? line.slice(0, longestLine) : line
      if (lines.length < size) lines.push(kept)
      else {
        lines[next] = kept
        next = (next + 1) % size
        dropped += 1
      }
    },
    read({ level = 'debug', grep, since, session_id, request_id, limit }) {
      const wanted = grep?.toLowerCase()
      const found: LogEntry[] = []
      for (const line of inOrder().reverse()) {
        if (found.length >= limit) break
        // On the text, before it is parsed: most lines do not match.
        if (wanted !== undefined && !line.toLowerCase().includes(wanted)) continue
        const entry = parse(line)
        if (since !== undefined && entry.at < since) break
        if (levels[entry.level] < levels[level]) continue
        if (session_id !== undefined && entry.session_id !== session_id) continue
        if (request_id !== undefined && entry.request_id !== request_id) continue
        found.push(entry)
      }
      return { entries: found.reverse(), dropped }
    },
  }
}

/** What libraries print goes to the log as well. The returned function restores the console. */
export function captureConsole(log: Log): () => void {
  const kept = {
    log: console.log,
    info: console.info,
    warn: console.warn,
    error: console.error,
    debug: console.debug,
  }
  const to =
    (level: Level) =>
    (first: unknown, ...rest: unknown[]) => {
      const text = [first, ...rest].map((part) =>
        typeof part === 'string' ? part : inspect(part, { depth: 3 }),
      )
      log[level](mask(text.join(' ')).slice(0, longestLine), { source: 'console' })
    }
  Object.assign(console, {
    log: to('info'),
    info: to('info'),
    warn: to('warn'),
    error: to('error'),
    debug: to('debug'),
  })
  return () => void Object.assign(console, kept)
}
