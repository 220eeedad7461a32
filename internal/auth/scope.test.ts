import { expect, test } from 'vitest'
import { couldAllow, covers, formatScope, needs, parseScope, sees } from './scope.ts'

const project = '0f9d5cbe-7a9e-4d0c-9a52-6a1c2f3b4d5e'
const other = '1f9d5cbe-7a9e-4d0c-9a52-6a1c2f3b4d5e'
const scopes = ['admin', 'admin:ro', `project:${project}`, `project:${project}:ro`]

test('a scope is read and written the same', () => {
  for (const text of scopes) expect(formatScope(parseScope(text))).toBe(text)
})

test.each([
  '',
  'root',
  'admin:rw',
  'project',
  'project:',
  'project:x',
  `project:${project}:rw`,
  `project:${project}:ro:x`,
  `project:${project.toUpperCase()}`,
])('"%s" is no scope', (text) => {
  expect(() => parseScope(text)).toThrow(/is not a scope/)
})

test('each scope could use what the matrix gives it, and nothing else', () => {
  const allowed = Object.fromEntries(
    scopes.map((text) => [text, needs.filter((need) => couldAllow(parseScope(text), need))]),
  )
  expect(allowed).toEqual({
    admin: [...needs],
    'admin:ro': ['admin:read', 'global:read', 'project:read'],
    [`project:${project}`]: ['global:read', 'project:write', 'project:read'],
    [`project:${project}:ro`]: ['global:read', 'project:read'],
  })
})

test('a project scope sees its own project alone', () => {
  expect(sees(parseScope(`project:${project}`), project)).toBe(true)
  expect(sees(parseScope(`project:${project}`), other)).toBe(false)
  expect(sees(parseScope('admin:ro'), other)).toBe(true)
})

test('a scope covers only what is within it', () => {
  const pairs = scopes.flatMap((outer) =>
    scopes
      .filter((inner) => covers(parseScope(outer), parseScope(inner)))
      .map((inner) => `${outer} > ${inner}`),
  )
  expect(pairs).toEqual([
    ...scopes.map((inner) => `admin > ${inner}`),
    'admin:ro > admin:ro',
    `admin:ro > project:${project}:ro`,
    `project:${project} > project:${project}`,
    `project:${project} > project:${project}:ro`,
    `project:${project}:ro > project:${project}:ro`,
  ])
  expect(covers(parseScope(`project:${project}`), parseScope(`project:${other}`))).toBe(false)
})
