// Reads a child's output as text, in whole characters, and no faster than the sink has room.

import type { Readable } from 'node:stream'
import { StringDecoder } from 'node:string_decoder'
import { setTimeout as delay, setImmediate as nextIteration } from 'node:timers/promises'
import type { Sink } from '../droid.ts'

/** Smaller chunks are read without waiting. */
const pieceBytes = 16 * 1024

// A child that prints without end always has more to read, and Node would read megabytes of it before the next child. A
// reader that had a large piece waits until the others had theirs.
/** Large pieces read per iteration of the event loop, of all children together. */
const piecesPerIteration = 2
const waiting = new Set<() => void>()
let scheduled = false

function serve(): void {
  scheduled = false
  let left = piecesPerIteration
  for (const go of waiting) {
    if (left-- === 0) break
    waiting.delete(go)
    go()
  }
  schedule()
}

function schedule(): void {
  if (scheduled || waiting.size === 0) return
  scheduled = true
  setImmediate(serve)
}

/** Settles when this reader may read again. */
function nextReadTurn(): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  waiting.add(resolve)
  schedule()
  return promise
}

export type OutputReader = {
  /** True after the last byte. */
  readonly ended: boolean
  /** Time of the last read, or now while reading waits for room. */
  readonly active_ms: number
  readonly end: Promise<void>
}

export function readText(
  stream: Readable,
  sink: Pick<Sink, 'room'>,
  on_text: (text: string) => void,
): OutputReader {
  const decoder = new StringDecoder('utf8')
  const { promise: end, resolve } = Promise.withResolvers<void>()
  let ended = false
  let active_ms = performance.now()
  let holding = false
  const finish = () => {
    if (ended) return
    ended = true
    on_text(decoder.end())
    resolve()
  }
  const mayGoOn = async () => {
    for (let room = sink.room(); room; room = sink.room()) await room
    await nextReadTurn()
  }
  stream.on('data', (chunk: Buffer) => {
    active_ms = performance.now()
    on_text(decoder.write(chunk))
    if (holding || (chunk.length < pieceBytes && !sink.room())) return
    holding = true
    stream.pause()
    void mayGoOn().then(() => {
      holding = false
      active_ms = performance.now()
      stream.resume()
    })
  })
  stream.on('end', finish)
  stream.on('close', finish)
  // A broken pipe has no more output; the exit of the writer is reported separately.
  stream.on('error', finish)
  return {
    get ended() {
      return ended
    },
    get active_ms() {
      return holding ? performance.now() : active_ms
    },
    end,
  }
}

/** Waits until all is read, or until there is no output for a while: a background process may keep the pipe open. */
export async function drained(readings: OutputReader[], quiet_ms: number): Promise<void> {
  const last = () => Math.max(...readings.map((it) => it.active_ms))
  for (;;) {
    if (readings.every((it) => it.ended)) return
    const seen = last()
    const left = quiet_ms - (performance.now() - seen)
    if (left <= 0) {
      // After a stall of the event loop the pipe may have unread output: poll it once more.
      await nextIteration()
      await nextIteration()
      if (last() === seen) return
      continue
    }
    const wait = new AbortController()
    await Promise.race([
      Promise.all(readings.map((it) => it.end)),
      delay(Math.max(left, 5), undefined, { signal: wait.signal }).catch(() => {}),
    ])
    wait.abort()
  }
}
