import { expect, test } from 'vitest'
import { show } from './show.ts'

test('a list is printed as a table, with other fields below it', () => {
  const { stdout } = show({
    projects: [
      { project_id: 'a', name: 'one', limits: { cpus: 1 } },
      { project_id: 'bbb', name: 'two', limits: { cpus: 2 } },
    ],
    next_cursor: null,
    total: 2,
  })
  expect(stdout).toBe('project_id  name\na           one\nbbb         two\n\ntotal  2\n')
})

test('a list of plain values is one cell, in a table and in a record', () => {
  const next_runs = ['03:00', '04:00']
  expect(show({ schedules: [{ name: 'one', next_runs, targets: [{ id: 'x' }] }] }).stdout).toBe(
    'name  next_runs\none   03:00, 04:00\n',
  )
  expect(show({ next_runs }).stdout).toBe('next_runs  03:00, 04:00\n')
})

test('an empty list is reported as such', () => {
  expect(show({ projects: [], next_cursor: null }).stdout).toBe('no projects\n')
})

test('an object is printed as a record, even if it contains lists', () => {
  expect(show({ id: 'x', requires: [] }).stdout).toBe('id        x\nrequires  []\n')
  expect(show({ name: 'one', limits: { cpus: 1 } }).stdout).toBe('name    one\nlimits\n  cpus  1\n')
})

test('the result of a command is its output and its exit code', () => {
  expect(show({ exit_code: 3, stdout: 'out', stderr: 'err', truncated: true, duration_ms: 5 })).toEqual({
    stdout: 'out',
    stderr: 'erroubliette: the output was truncated\n',
    code: 3,
  })
})
