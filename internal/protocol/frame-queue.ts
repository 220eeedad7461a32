// The frames of one connection, processed in order: for a few milliseconds in each iteration of the event loop, and no faster
// than the throttle of its container. A connection that sends thousands at once delays only itself.

import { costOfFrame, type FrameCost } from './frame-scan.ts'
import type { Throttle } from './throttle.ts'
import { mustYield, waitForSlice } from './time-slice.ts'

export type Frame = { text: string } & FrameCost

export type FrameQueue = {
  push(frames: string[]): void
  /** The weight of the frames that are not processed yet. */
  readonly waiting: number
  stop(): void
}

export function createFrameQueue(options: {
  take(frame: Frame): void
  throttle?: Throttle
  /** The queue is empty. */
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

  /** `served`: the next frame may be processed even if others wait. */
  function work(served = false): void {
    later = undefined
    for (let free = served; next < frames.length; free = false) {
      if (!free && mustYield()) {
        later = waitForSlice(() => work(true))
        return
      }
      later = options.throttle?.(frames[next]!, onThrottled)
      if (later) return
      takeNext()
    }
    frames = []
    next = 0
    options.onEmpty()
  }
  function onThrottled(): void {
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
