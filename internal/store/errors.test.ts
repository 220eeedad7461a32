import { expect, test } from 'vitest'
import { Fault } from '../fault.ts'
import { brokenRule, sqlState, translate } from './errors.ts'

const thrown = (fields: Record<string, string>) => Object.assign(new Error(fields.message ?? 'no'), fields)
const kindOf = (fields: Record<string, string>) => {
  const fault = translate(thrown(fields))
  return fault instanceof Fault ? fault.kind : 'untranslated'
}

test.each([
  ['23505', 'conflict'],
  ['23503', 'not_found'],
  ['22021', 'invalid'],
  ['22P05', 'invalid'],
  ['22P02', 'invalid'],
  ['23514', 'invalid'],
  ['40001', 'conflict'],
  ['40P01', 'conflict'],
  ['57014', 'timeout'],
  ['55P03', 'timeout'],
  ['57P01', 'unavailable'],
  ['57P03', 'unavailable'],
  ['08006', 'unavailable'],
  ['53300', 'unavailable'],
  ['28P01', 'unavailable'],
  ['3D000', 'unavailable'],
  ['ECONNREFUSED', 'unavailable'],
  ['EPIPE', 'unavailable'],
  ['42601', 'untranslated'],
])('%s is %s', (code, kind) => {
  expect(kindOf({ code })).toBe(kind)
})

test('a row that something still refers to is a conflict', () => {
  expect(kindOf({ code: '23503', detail: 'Key (id)=(1) is still referenced from table "child".' })).toBe(
    'conflict',
  )
})

test('a connection that the driver lost is unavailable, though it has no code', () => {
  expect(kindOf({ message: 'Connection terminated unexpectedly' })).toBe('unavailable')
})

test('state and broken rule can be read from the fault, but values are not in its message', () => {
  const fault = translate(
    thrown({ code: '23505', table: 't', constraint: 't_key', detail: 'Key (a)=(hush) exists' }),
  )
  expect(sqlState(fault)).toBe('23505')
  expect(brokenRule(fault)).toBe('t_key')
  expect(JSON.stringify((fault as Fault).shape())).not.toContain('hush')
})
