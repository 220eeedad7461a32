import { setTimeout as pause } from 'node:timers/promises'

/** The first truthy value of `condition`; an error that names `what` at the deadline. What it throws counts as "not yet". */
export async function until<T>(
  condition: () => T | Promise<T>,
  options: { deadline_ms?: number; every_ms?: number; what: string },
): Promise<Exclude<T, undefined | null | false>> {
  const { deadline_ms = 10_000, every_ms = 20, what } = options
  const deadline = performance.now() + deadline_ms
  let last: unknown
  for (;;) {
    try {
      const value = await condition()
      if (value) return value as Exclude<T, undefined | null | false>
      last = value
    } catch (error) {
      last = error
    }
    if (performance.now() > deadline)
      throw new Error(`not within ${deadline_ms} ms: ${what}`, { cause: last })
    await pause(every_ms)
  }
}
