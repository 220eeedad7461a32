// Reading a child's output: as text, whole characters only, and no faster than there is room for it.

import type { Readable } from 'node:stream'
import { StringDecoder } from 'node:string_decoder'
import { setImmediate, setTimeout } from 'node:timers/promises'
import type { Sink } from '../droid.ts'
import { nextReadTurn } from './read-turns.ts'

/** Who prints less than this at once is read at once. */
const PIECE_BYTES = 16 * 1024

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
  let held: Buffer | undefined
  const pass = (chunk: Buffer | undefined) => {
    held = undefined
    if (chunk) on_text(decoder.write(chunk))
  }
  const finish = () => {
    if (ended) return
    ended = true
    pass(held)
    on_text(decoder.end())
    resolve()
  }
  /** Passing on is most of the work, so a large piece waits for its turn, and the next one for room. */
  const mayGoOn = async () => {
    if (held) await nextReadTurn()
    pass(held)
    for (let room = sink.room(); room; room = sink.room()) await room
  }
  stream.on('data', (chunk: Buffer) => {
    active_ms = performance.now()
    // One that was on its way when the stream was paused.
    if (holding) {
      pass(held)
      pass(chunk)
      return
    }
    if (chunk.length >= PIECE_BYTES) held = chunk
    else pass(chunk)
    if (!held && !sink.room()) return
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
