// Agents that make files in their home when they start for the first time, and fail when two do so at once: the first one
// of a command starts alone, the others when it is ready or gone. The home may be older than this process and the agent
// newer than the home, so the first of each life of the supervisor is the one.
import type { Droid } from '../../../../internal/droid/droid.ts'
import { Fault } from '../../../../internal/fault.ts'

function startAfter(before: Promise<unknown>, start: () => Droid): Droid {
  let ended = false
  let droid: Droid | undefined
  const started = before.then(() => {
    if (ended) throw new Fault('conflict', 'the session ended before its agent was started')
    droid = start()
    return droid
  })
  // Those who want it wait for `ready`.
  started.catch(() => undefined)
  const never = new Promise<never>(() => {})
  return {
    ready: started.then(({ ready }) => ready),
    gone: started.then(
      ({ gone }) => gone,
      () => never,
    ),
    turn: async (turn) => await (await started).turn(turn),
    cancel: async (grace_ms) => await droid?.cancel(grace_ms),
    answer: (request_id, outcome) => droid?.answer(request_id, outcome) ?? false,
    async end(grace_ms) {
      ended = true
      await droid?.end(grace_ms)
    },
  }
}

export type FirstAlone = (command: string, start: () => Droid) => Droid

/** A first one that fails is followed by the next one alone. */
export function createFirstAlone(): FirstAlone {
  const commands = new Map<string, { once: PromiseWithResolvers<void>; last: Promise<void> }>()

  return (command, start) => {
    const known = commands.get(command)
    const droid = known ? startAfter(Promise.race([known.once.promise, known.last]), start) : start()
    const place = known ?? { once: Promise.withResolvers<void>(), last: Promise.resolve() }
    commands.set(command, place)
    place.last = droid.ready.then(
      () => place.once.resolve(),
      () => undefined,
    )
    return droid
  }
}
