// The frames of one connection, taken one after another: a few in each turn of the event loop, and no faster than the
// pace of its container. Whoever sends thousands at once waits for them himself, and nobody else does.
import type { Pace } from './pace.ts'

const inOneTurn = 32

export type Intake = {
  push(frames: string[]): void
  /** Characters of frames that are not taken yet. */
  readonly waiting: number
  stop(): void
}

export function createIntake(options: {
  take(frame: string): void
  pace?: Pace
  /** Nothing waits any more. */
  onEmpty(): void
}): Intake {
  let frames: string[] = []
  let next = 0
  let waiting = 0
  let later: (() => void) | undefined

  function takeNext(): void {
    const frame = frames[next++]!
    waiting -= frame.length
    options.take(frame)
  }

  function work(): void {
    later = undefined
    for (let taken = 0; next < frames.length; taken++) {
      if (taken === inOneTurn) {
        const turn = setImmediate(work)
        later = () => clearImmediate(turn)
        return
      }
      later = options.pace?.(frames[next]!.length, inTurn)
      if (later) return
      takeNext()
    }
    frames = []
    next = 0
    options.onEmpty()
  }
  function inTurn(): void {
    takeNext()
    work()
  }

  return {
    push(more) {
      for (const frame of more) waiting += frame.length
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
