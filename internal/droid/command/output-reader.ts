// Reading a child's output: as text, whole characters only, and no faster than there is room for it.

import type { Readable } from 'node:stream'
import { StringDecoder } from 'node:string_decoder'
import { setImmediate, setTimeout } from 'node:timers/promises'
import type { Sink } from '../droid.ts'

/** Who prints less than this at once is read at once. */
const pieceBytes = 16 * 1024

// A child that prints without end always has more to read, and Node would read megabytes of it before the next child. A
// reader that had a large piece waits until the others had theirs.
/** Read in one turn of the event loop, of all children together. */
const pieces = 2
const waiting = new Set<() => void>()
let scheduled = false

function serve(): void {
  scheduled = false
  let left = pieces
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

/** Settles when it is this reader's turn again. */
function nextReadTurn(): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  waiting.add(resolve)
  schedule()
  return promise
}

export type OutputReader = {
  /** True from the last byte on, or from the moment it was given up. */
  readonly ended: boolean
  /** When something was read last, or could not be for want of room. */
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
  // A pipe that breaks has no more to say; the exit of its writer tells the rest.
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

/** All read to the end, or quiet for a while: something in the background may hold the pipe open for ever. */
export async function drained(readings: OutputReader[], quiet_ms: number): Promise<void> {
  const last = () => Math.max(...readings.map((it) => it.active_ms))
  for (;;) {
    if (readings.every((it) => it.ended)) return
    const seen = last()
    const left = quiet_ms - (performance.now() - seen)
    if (left <= 0) {
      // After a stall of ours the clock says quiet though nobody has looked into the pipe yet: look first.
      await setImmediate()
      await setImmediate()
      if (last() === seen) return
      continue
    }
    const wait = new AbortController()
    await Promise.race([
      Promise.all(readings.map((it) => it.end)),
      setTimeout(Math.max(left, 5), undefined, { signal: wait.signal }).catch(() => {}),
    ])
    wait.abort()
  }
}
