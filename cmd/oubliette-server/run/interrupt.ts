// Ctrl-C and the other ways in which a run is asked to stop, in every phase. The first Ctrl-C cancels the turn and waits for
// its end; if the turn has not begun, or on the second Ctrl-C, the session is ended. A third one exits at once.
export const interrupted_code = 130

type Act = () => Promise<unknown>
/** Nothing of the prompt has run. */
const before_turn = ['queued', 'preparing', 'starting']

/** `kept`: the session goes on after the run, so it is never ended. */
export function onInterrupt(kept: boolean) {
  let acts: { cancel: Act; end: Act } | undefined
  let status = 'starting'
  const stop = new AbortController()
  const state = {
    count: 0,
    code: interrupted_code,
    /** Set when the run ends without waiting for its turn: resolves with the exit code. */
    left: undefined as Promise<number> | undefined,
    /** Aborted when the events need not be followed any longer. */
    signal: stop.signal,
    status: (now: string) => {
      status = now
    },
    /** The session exists. */
    running(cancel: Act, end: Act) {
      acts = { cancel, end }
      if (state.count > 0) act()
    },
    press,
    /** Tells what the first Ctrl-C does. */
    say: (_text: string): void => undefined,
    [Symbol.dispose]() {
      process.off('SIGINT', press)
      for (const [name, handle] of signals) process.off(name, handle)
      process.stdout.removeListener('error', closed).on('error', exit)
      process.stderr.removeListener('error', closed)
    },
  }

  function leave(act: Act): void {
    // Fails if the turn or the session is over.
    state.left ??= act().then(
      () => state.code,
      () => state.code,
    )
    stop.abort()
  }

  function act(): void {
    if (!acts) return
    const { cancel, end } = acts
    if (state.left) process.exit(state.code)
    if (state.count > 1 || (before_turn.includes(status) && !kept)) leave(kept ? cancel : end)
    // Fails if the turn is already over.
    else cancel().catch(() => undefined)
  }

  function press(): void {
    state.count += 1
    // The session may exist already: its id is in the answer that is awaited.
    if (!acts && state.count > 1) process.exit(state.code)
    if (state.count === 1 && acts && (kept || !before_turn.includes(status)))
      state.say(`cancelling the turn; press Ctrl-C again to ${kept ? 'leave' : 'end the session'}`)
    if (state.count > 2) process.exit(state.code)
    act()
  }

  /** The terminal, the parent or the reader of the output is gone. */
  function end(code: number): void {
    state.count += 1
    state.code = code
    if (!acts) process.exit(code)
    leave(kept ? acts.cancel : async () => await acts?.cancel().finally(acts.end))
  }
  const exit = () => process.exit(0)
  // A reader that closes the pipe early (`| head`) is not an error.
  const closed = () => state.left || end(0)
  const signals: ['SIGTERM' | 'SIGHUP', () => void][] = [
    ['SIGTERM', () => end(143)],
    ['SIGHUP', () => end(129)],
  ]
  process.on('SIGINT', press)
  for (const [name, handle] of signals) process.on(name, handle)
  // Replaces the listener of `main.ts`, which exits at once.
  process.stdout.removeAllListeners('error').on('error', closed)
  process.stderr.on('error', closed)
  return state
}
