// Random numbers that a test can repeat: the seed is printed, and OUBLIETTE_TEST_SEED sets it.
import { randomInt } from 'node:crypto'

export type Random = {
  seed: number
  /** A whole number below `limit`. */
  below(limit: number): number
  of<T>(items: readonly T[]): T
}

/** The generator of Park and Miller. */
export function seeded(what: string): Random {
  const seed = Number(process.env.OUBLIETTE_TEST_SEED) || randomInt(1, 2 ** 31 - 1)
  console.log(`${what}: OUBLIETTE_TEST_SEED=${seed}`)
  let state = seed
  const below = (limit: number) => {
    state = (state * 48_271) % (2 ** 31 - 1)
    return state % limit
  }
  return { seed, below, of: (items) => items[below(items.length)]! }
}
