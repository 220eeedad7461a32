import { expect, it } from 'vitest'
import { createBatch } from './batch.ts'

it('commits together what arrives during a commit, and gives each item its own result', async () => {
  const commits: number[][] = []
  const gate = Promise.withResolvers<void>()
  const batch = createBatch<number, number>({
    most: 3,
    commit: async (items) => {
      commits.push(items)
      if (commits.length === 1) await gate.promise
      return items.map((item) => item * 10)
    },
  })
  const first = batch.add(1)
  const others = [2, 3, 4, 5].map(batch.add)
  expect(batch.waiting).toBe(4)
  gate.resolve()
  expect(await Promise.all([first, ...others])).toEqual([10, 20, 30, 40, 50])
  expect(commits).toEqual([[1], [2, 3, 4], [5]])
  expect(batch.waiting).toBe(0)
})

it('rejects the items of a failed commit, and commits those that follow', async () => {
  let tries = 0
  const batch = createBatch<number, number>({
    commit: async (items) => {
      tries += 1
      if (tries === 1) throw new Error('no')
      return items
    },
  })
  await expect(batch.add(1)).rejects.toThrow('no')
  expect(await batch.add(2)).toBe(2)
})

it.each([
  ['one by one where the error allows it', 'refused', ['fulfilled', 'fulfilled', 'rejected', 'fulfilled']],
  ['not at all where it does not', 'outage', ['fulfilled', 'rejected', 'rejected', 'rejected']],
])('repeats a failed batch: %s', async (_, message, outcomes) => {
  const commits: number[][] = []
  const batch = createBatch<number, number>({
    splits: (error) => (error as Error).message === 'refused',
    commit: async (items) => {
      commits.push(items)
      await Promise.resolve()
      if (items.includes(3)) throw new Error(message)
      return items
    },
  })
  const settled = await Promise.allSettled([1, 2, 3, 4].map(batch.add))
  expect(settled.map(({ status }) => status)).toEqual(outcomes)
  const repeats = message === 'refused' ? [[2], [3], [4]] : []
  expect(commits).toEqual([[1], [2, 3, 4], ...repeats])
})

it('is settled when everything that was added is committed', async () => {
  const done: number[] = []
  const batch = createBatch<number, void>({
    most: 1,
    commit: async (items) => {
      await Promise.resolve()
      done.push(...items)
      return [undefined]
    },
  })
  await batch.settled()
  for (const item of [1, 2, 3]) void batch.add(item)
  await batch.settled()
  expect(done).toEqual([1, 2, 3])
})
