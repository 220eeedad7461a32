import { describe, expect, it } from 'vitest'
import { createTurns } from './turns.ts'

describe('turns', () => {
  it('are taken one after the other for one key, at once for others, and a failure holds up nobody', async () => {
    const turn = createTurns()
    const gate = Promise.withResolvers<void>()
    const order: string[] = []
    const first = turn('a', async () => {
      await gate.promise
      order.push('first')
      throw new Error('failed')
    })
    const second = turn('a', async () => void order.push('second'))
    await turn('b', async () => void order.push('other'))
    gate.resolve()
    await expect(first).rejects.toThrow('failed')
    await second
    expect(order).toEqual(['other', 'first', 'second'])
  })
})
