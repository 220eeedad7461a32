// The gate: an action of any tool that no suite has called fails the run. It runs after all suites, and only with them.
import { expect, it } from 'vitest'
import { tools } from '../../../internal/tools/declarations/index.ts'
import { takeCalls } from '../../harness/calls.ts'

const called = await takeCalls()

it.skipIf(called === undefined)('every action of every tool was called by a suite', () => {
  const declared = Object.values(tools).flatMap((tool) =>
    Object.keys(tool.actions).map((action) => `${tool.name} ${action}`),
  )
  expect(declared.filter((action) => !called?.has(action))).toEqual([])
})
