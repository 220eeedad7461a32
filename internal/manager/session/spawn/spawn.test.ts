import { expect, test } from 'vitest'
import type { Caller } from '../../../auth/caller.ts'
import { Fault } from '../../../fault.ts'
import { createSpawnQueue } from './spawn.ts'

const caller = (session_id: string) => ({ session_id }) as Caller
const exhausted = () => Promise.reject(new Fault('exhausted', 'enough'))

test('those who waited while one was refused are refused by the same look, later ones are not', async () => {
  const inTurn = createSpawnQueue()
  let looks = 0
  const refuse = () => {
    looks += 1
    return exhausted()
  }
  const wave = await Promise.allSettled(Array.from({ length: 100 }, () => inTurn('p', caller('s'), refuse)))
  expect(wave.every(({ status }) => status === 'rejected')).toBe(true)
  expect(looks).toBe(1)
  expect(await inTurn('p', caller('s'), async () => 'spawned')).toBe('spawned')
})

test('a refusal of one session is none of another, and other errors are only of the one who met them', async () => {
  const inTurn = createSpawnQueue()
  const broken = () => Promise.reject(new Fault('unavailable', 'no database'))
  const outcomes = await Promise.allSettled([
    inTurn('p', caller('a'), exhausted),
    inTurn('p', caller('b'), async () => 'b'),
    inTurn('p', caller('c'), broken),
    inTurn('p', caller('c'), async () => 'c'),
  ])
  expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'fulfilled', 'rejected', 'fulfilled'])
})
