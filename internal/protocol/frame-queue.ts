// The frames of one connection, taken one after another: for a few milliseconds in each turn of the event loop, and no faster than the
// pace of its container. Whoever sends thousands at once waits for them himself, and nobody else does.

import { costOfFrame, type FrameCost } from './frame-scan.ts'
import type { Throttle } from './throttle.ts'
import { mustWait, waitForTurn } from './turn.ts'

export type Frame = { text: string } & FrameCost

export type FrameQueue = {
  push(frames: string[]): void
  /** The weight of the frames that are not taken yet. */
  readonly waiting: number
  stop(): void
}

export function createFrameQueue(options: {
  take(frame: Frame): void
  pace?: Throttle
  /** Nothing waits any more. */
  onEmpty(): void
}): FrameQueue {
  let frames: Frame[] = []
  let next = 0
  let waiting = 0
  let later: (() => void) | undefined

  function takeNext(): void {
    const frame = frames[next++]!
    waiting -= frame.weight
    options.take(frame)
  }

  /** `served`: the next frame may be taken, whoever else waits. */
  function work(served = false): void {
    later = undefined
    for (let free = served; next < frames.length; free = false) {
      if (!free && mustWait()) {
        later = waitForTurn(() => work(true))
        return
      }
      later = options.pace?.(frames[next]!, paced)
      if (later) return
      takeNext()
    }
    frames = []
    next = 0
    options.onEmpty()
  }
  function paced(): void {
    takeNext()
    work()
  }

  return {
    push(texts) {
      const more = texts.map((text) => ({ text, ...costOfFrame(text) }))
      for (const { weight } of more) waiting += weight
      frames = frames.length === 0 ? more : [...frames, ...more]
      if (!later && frames.length > 0) work()
    },
    get waiting() {
      return waiting
    },
    stop() {
      later?.()
      frames = []
      next = 0
      waiting = 0
    },
  }
}
