import { expect, test } from 'vitest'
import type { Caller } from './caller.ts'
import { isGranted, mayAct } from './grant.ts'
import { parseScope } from './scope.ts'

const own = '11111111-1111-4111-8111-111111111111'
const other = '22222222-2222-4222-8222-222222222222'
const caller = (scope: string, more: Partial<Caller> = {}): Caller => ({
  kind: 'token',
  id: 'tok_x',
  name: 'x',
  scope: parseScope(scope),
  token_id: 'tok_x',
  expires_at: null,
  ...more,
})

test('a scope within the project needs no grant, and one beyond it needs a grant that covers it', () => {
  const granted = (grant: string | null, scope: string) => isGranted(grant, own, parseScope(scope))
  for (const scope of [`project:${own}`, `project:${own}:ro`]) expect(granted(null, scope)).toBe(true)
  for (const scope of ['admin', 'admin:ro', `project:${other}`, `project:${other}:ro`]) {
    expect(granted(null, scope)).toBe(false)
    expect(granted('admin', scope)).toBe(true)
  }
  expect(granted('admin:ro', 'admin')).toBe(false)
  expect(granted('admin:ro', `project:${other}:ro`)).toBe(true)
  expect(granted('admin:ro', `project:${other}`)).toBe(false)
  expect(granted(`project:${other}`, `project:${other}:ro`)).toBe(true)
  expect(granted(`project:${other}`, 'admin:ro')).toBe(false)
})

test('only who holds the grant acts in a project that has one, besides its own sessions', () => {
  expect(mayAct(caller(`project:${own}`), own, null)).toBe(true)
  for (const grant of ['admin', 'admin:ro', `project:${other}`]) {
    expect(mayAct(caller(`project:${own}`), own, grant)).toBe(false)
    expect(mayAct(caller('admin'), own, grant)).toBe(true)
    expect(mayAct(caller(`project:${own}`, { inside_project_id: own }), own, grant)).toBe(true)
    expect(mayAct(caller(`project:${own}`, { inside_project_id: other }), own, grant)).toBe(false)
  }
})
