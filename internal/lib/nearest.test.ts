import { expect, test } from 'vitest'
import { didYouMean, nearest } from './nearest.ts'

test('a misspelt word yields the nearest known words, an unrelated one yields none', () => {
  const known = ['project', 'container', 'status', 'up', 'my-project']
  expect(nearest('projct', known)).toEqual(['project'])
  expect(nearest('stauts', known)).toEqual(['status'])
  expect(nearest('cont', known)).toEqual(['container'])
  expect(nearest('PROJECT', known, 3)).toEqual(['project', 'my-project'])
  expect(nearest('xyzzy', known)).toEqual([])
  expect(didYouMean('contaner', known)).toEqual({ hint: 'did you mean "container"?' })
  expect(didYouMean('xyzzy', known)).toEqual({})
})

test('the work does not grow with the length of the words', () => {
  const long = Array.from({ length: 250 }, (_, index) => `${'x'.repeat(100_000)}${index}`)
  const started_ms = performance.now()
  nearest('y'.repeat(100_000), long)
  expect(performance.now() - started_ms).toBeLessThan(500)
})
