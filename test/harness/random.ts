// Random choices that can be repeated: each test prints its seed, and OUBLIETTE_TEST_SEED sets it.
import { randomInt } from 'node:crypto'

export type Random = {
  seed: number
  /** A number from 0 (inclusive) to 1 (exclusive). */
  fraction(): number
  /** A whole number below `limit`. */
  below(limit: number): number
  of<T>(items: readonly T[]): T
  /** A generator of its own, for work that runs at the same time: its choices do not depend on who asks first. */
  fork(): Random
}

const modulus = 2 ** 31 - 1

/** Without it, a fork would repeat the numbers of its parent. */
const mix = (value: number) => {
  let mixed = value
  for (let round = 0; round < 2; round++) mixed = Math.imul(mixed ^ (mixed >>> 16), 0x45d9f3b)
  return (mixed ^ (mixed >>> 16)) >>> 0
}

/** The generator of Park and Miller. */
function generator(seed: number): Random {
  let state = Math.abs(Math.trunc(seed)) % modulus || 1
  const next = () => {
    state = (state * 48_271) % modulus
    return state
  }
  const below = (limit: number) => next() % limit
  return {
    seed,
    fraction: () => (next() - 1) / (modulus - 1),
    below,
    of: (items) => items[below(items.length)]!,
    fork: () => generator(mix(next())),
  }
}

export function seeded(what: string): Random {
  const seed = Number(process.env.OUBLIETTE_TEST_SEED) || randomInt(1, modulus)
  console.log(`${what}: OUBLIETTE_TEST_SEED=${seed}`)
  return generator(seed)
}
