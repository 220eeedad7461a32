// Reads the log of the container's main process, line by line.
import type { Readable } from 'node:stream'
import type Docker from 'dockerode'
import { Fault } from '../../../fault.ts'
import type { LogLine, Runtime } from '../../runtime.ts'
import { isStatus } from '../errors.ts'
import type { Names } from '../names.ts'

const maxLineLength = 1024 * 1024

type Frame = { stream: 'stdout' | 'stderr'; data: Buffer }

const headerBytes = 8

/**
 * The engine multiplexes stdout and stderr on one connection in frames: a stream type, three zero bytes, a length, the data.
 * Takes chunks and returns the frames that are complete.
 */
export function createDemux(): (chunk: Buffer) => Frame[] {
  let pending: Buffer[] = []
  let held = 0
  let needed = headerBytes
  return (chunk) => {
    pending.push(chunk)
    held += chunk.length
    // Joining on every chunk would make a frame of many chunks quadratic.
    if (held < needed) return []
    let buffer = pending.length === 1 ? chunk : Buffer.concat(pending)
    const frames: Frame[] = []
    needed = headerBytes
    while (buffer.length >= headerBytes) {
      const end = headerBytes + buffer.readUInt32BE(4)
      if (buffer.length < end) {
        needed = end
        break
      }
      frames.push({ stream: buffer[0] === 2 ? 'stderr' : 'stdout', data: buffer.subarray(headerBytes, end) })
      buffer = buffer.subarray(end)
    }
    pending = buffer.length > 0 ? [buffer] : []
    held = buffer.length
    return frames
  }
}

/**
 * Every frame begins with its time. A line longer than the engine's buffer comes in several, of which only the last
 * ends with a newline; their times in between are not part of the text.
 */
export function createLines(): { push(frame: Frame): LogLine[]; rest(): LogLine[] } {
  const open = new Map<LogLine['stream'], LogLine>()
  return {
    push({ stream, data }) {
      const text = data.toString('utf8')
      const space = text.indexOf(' ')
      const at = space < 0 ? text.trim() : text.slice(0, space)
      const content = space < 0 ? '' : text.slice(space + 1)
      const before = open.get(stream)
      const line = {
        stream,
        at: before?.at ?? at,
        text: (before?.text ?? '') + content.replace(/\r?\n$/, ''),
      }
      if (!text.endsWith('\n') && line.text.length < maxLineLength) {
        open.set(stream, line)
        return []
      }
      open.delete(stream)
      return [line]
    },
    rest: () => [...open.values()],
  }
}

const units: Record<string, number> = { d: 86_400, h: 3_600, m: 60, s: 1 }

/** As Docker's own: a date, seconds since 1970, or how long ago (`10m`, `1h30m`). In seconds, as the engine wants it. */
export function parseSince(since: string, now: Date): string {
  if (/^\d+(\.\d+)?$/.test(since)) return since
  if (/^(?:\d+[dhms])+$/.test(since)) {
    const parts = [...since.matchAll(/(\d+)([dhms])/g)]
    const ago = parts.reduce((sum, [, count, unit]) => sum + Number(count) * units[unit!]!, 0)
    return (now.getTime() / 1000 - ago).toFixed(3)
  }
  const milliseconds = /^\d{4}-\d{2}-\d{2}/.test(since) ? Date.parse(since) : Number.NaN
  if (Number.isNaN(milliseconds))
    throw new Fault('invalid', `since "${since.slice(0, 60)}" is not a valid time`, {
      hint: 'use a date as 2026-01-31T12:00:00Z, seconds since 1970, or a duration before now: 10m, 1h30m',
    })
  // The engine counts to the nanosecond, and its own times must find their line again.
  const fraction = /\.(\d{1,9})/.exec(since)?.[1]
  return `${Math.floor(milliseconds / 1000)}.${(fraction ?? '0').padEnd(9, '0')}`
}

export function createLogs(docker: Docker, names: Names): Runtime['logs'] {
  return async function* (project_id, { tail, since, follow = false, signal }) {
    const container = docker.getContainer(names.of(project_id))
    const options = {
      stdout: true,
      stderr: true,
      timestamps: true,
      ...(tail === undefined ? {} : { tail }),
      ...(since === undefined ? {} : { since: parseSince(since, new Date()) as unknown as number }),
      ...(signal ? { abortSignal: signal } : {}),
    }
    const demux = createDemux()
    const lines = createLines()
    try {
      const source: Iterable<Buffer> | Readable = follow
        ? ((await container.logs({ ...options, follow: true })) as Readable)
        : [await container.logs({ ...options, follow: false })]
      const stop = () => void ('destroy' in source && source.destroy())
      signal?.addEventListener('abort', stop, { once: true })
      try {
        for await (const chunk of source) for (const frame of demux(chunk as Buffer)) yield* lines.push(frame)
        yield* lines.rest()
      } finally {
        signal?.removeEventListener('abort', stop)
        stop()
      }
    } catch (error) {
      if (signal?.aborted) return
      if (isStatus(error, 404))
        throw new Fault('not_found', 'the project has no container, so it has no logs', {
          hint: 'start it with container start',
          cause: error,
        })
      throw error
    }
  }
}
