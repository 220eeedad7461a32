import { expect, it } from 'vitest'
import { createBatch } from './batch.ts'

it('commits together what comes while it commits, and gives each its own result', async () => {
  const commits: number[][] = []
  const gate = Promise.withResolvers<void>()
  const add = createBatch<number, number>(async (items) => {
    commits.push(items)
    if (commits.length === 1) await gate.promise
    return items.map((item) => item * 10)
  }, 3)
  const first = add(1)
  const others = [2, 3, 4, 5].map(add)
  gate.resolve()
  expect(await Promise.all([first, ...others])).toEqual([10, 20, 30, 40, 50])
  expect(commits).toEqual([[1], [2, 3, 4], [5]])
})

it('tells those of a failed commit, and goes on', async () => {
  let tries = 0
  const add = createBatch<number, number>(async (items) => {
    tries += 1
    if (tries === 1) throw new Error('no')
    return items
  })
  await expect(add(1)).rejects.toThrow('no')
  expect(await add(2)).toBe(2)
})
