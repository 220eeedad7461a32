import { expect, test } from 'vitest'
import { type Bounds, boundsOfChild, excess } from './bounds.ts'

const bounds = (more: Partial<Bounds> = {}): Bounds => ({
  droid: 'claude',
  autonomy_level: 'medium',
  tools_allowed: [],
  tools_disallowed: [],
  ...more,
})

test('the same bounds, and narrower ones, are no excess', () => {
  const outer = bounds({ tools_allowed: ['Read', 'Bash'], tools_disallowed: ['Web'] })
  expect(excess(outer, outer)).toBeUndefined()
  const inner = bounds({
    autonomy_level: 'off',
    tools_allowed: ['Read'],
    tools_disallowed: ['Web', 'Bash'],
  })
  expect(excess(outer, inner)).toBeUndefined()
  expect(excess(bounds(), bounds({ droid: 'codex' }))).toBeUndefined()
  expect(excess(bounds({ autonomy_level: 'high' }), bounds({ droid: 'shell' }))).toBeUndefined()
})

test.each<[string, Bounds, Bounds]>([
  ['more autonomy', bounds(), bounds({ autonomy_level: 'high' })],
  ['a script, which requests no approvals', bounds(), bounds({ droid: 'shell' })],
  ['a tool that is not in the list', bounds({ tools_allowed: ['a'] }), bounds({ tools_allowed: ['a', 'b'] })],
  ['no list where the outer has one', bounds({ tools_allowed: ['a'] }), bounds()],
  ['a tool that is forbidden', bounds({ tools_disallowed: ['a'] }), bounds({ tools_disallowed: ['b'] })],
  [
    'a droid with other tools',
    bounds({ tools_disallowed: ['a'] }),
    bounds({ droid: 'codex', tools_disallowed: ['a'] }),
  ],
])('%s is', (_, outer, inner) => {
  expect(excess(outer, inner)).toEqual(expect.any(String))
})

test('a child has the bounds of its parent unless it asks for narrower ones', () => {
  const parent = { id: 'gogol_p', ...bounds({ tools_allowed: ['a', 'b'], tools_disallowed: ['c'] }) }
  const { id: _, ...same } = parent
  expect(boundsOfChild(parent, 'claude', {})).toEqual(same)
  expect(
    boundsOfChild(parent, 'claude', { autonomy_level: 'low', tools_allowed: ['a'], tools_disallowed: ['b'] }),
  ).toEqual(bounds({ autonomy_level: 'low', tools_allowed: ['a'], tools_disallowed: ['c', 'b'] }))
  expect(() => boundsOfChild(parent, 'claude', { autonomy_level: 'high' })).toThrow(/autonomy_level high/)
})
