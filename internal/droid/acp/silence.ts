// An agent that hangs in the middle of a turn: it says nothing, waits for nobody's answer and has no tool running.
const looks = 20

/**
 * Settles when nothing was heard for `limit_ms`. Time is counted in ticks, so that a container that was paused meanwhile
 * does not make its agents late.
 */
export function createSilence(options: {
  limit_ms: number
  /** Changes with every sign of life. */
  heard: () => number
  /** Something other than the agent is waited for. */
  excused: () => boolean
}) {
  const { promise: over, resolve } = Promise.withResolvers<void>()
  const tick_ms = options.limit_ms / looks
  let last = options.heard()
  let silent = 0
  const timer = setInterval(() => {
    const now = options.heard()
    silent = now !== last || options.excused() ? 0 : silent + 1
    last = now
    if (silent >= looks) resolve()
  }, tick_ms)
  return { over, [Symbol.dispose]: () => clearInterval(timer) }
}
