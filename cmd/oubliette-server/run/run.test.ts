import { expect, test } from 'vitest'
import { exitCodeOf, isTurnOver } from './events.ts'
import { createPrinter } from './print.ts'

function printed(events: Record<string, unknown>[], json = false) {
  const said = { out: '', err: '' }
  const to = (where: 'out' | 'err') => ({
    write: (text: string) => {
      said[where] += text
    },
  })
  const printer = createPrinter({ json, out: to('out'), err: to('err') })
  events.forEach((event, index) => void printer.show({ index, type: '', ...event }))
  printer.end()
  return said
}

test('stdout and stderr of a script are passed on unchanged and separately', () => {
  const said = printed([
    { type: 'status', status: 'running' },
    { type: 'delta', stream: 'stdout', text: 'one' },
    { type: 'delta', stream: 'stderr', text: 'two\n' },
    { type: 'delta', stream: 'stdout', text: ' more' },
    { type: 'completion', exit_code: 3, stop_reason: 'error', error: 'the script ended with exit code 3' },
  ])
  expect(said).toEqual({ out: 'one more', err: 'two\n' })
})

test('the text of an agent ends with a newline, and its tool calls go to stderr', () => {
  const said = printed([
    { type: 'delta', role: 'assistant', text: 'Look' },
    { type: 'tool_call', title: 'Read file', input: { path: 'a.txt' } },
    { type: 'tool_call', title: 'Read file', partial: true },
    { type: 'tool_result', status: 'failed', output: 'no\nsuch file' },
    { type: 'delta', role: 'assistant', text: 'ing' },
    { type: 'message', role: 'assistant', text: 'ing' },
  ])
  expect(said.out).toBe('Look\ning\n')
  expect(said.err).toBe('▸ Read file {"path":"a.txt"}\n✗ no such file\n')
})

test('with --json, every event is printed unchanged on one line', () => {
  const said = printed(
    [
      { type: 'delta', text: 'a\nb' },
      { type: 'odd', x: 1 },
    ],
    true,
  )
  expect(
    said.out
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line)),
  ).toEqual([
    { index: 0, type: 'delta', text: 'a\nb' },
    { index: 1, type: 'odd', x: 1 },
  ])
})

test('the exit code is that of the script, or reports whether the agent ended its turn', () => {
  const completion = (more: object) => exitCodeOf({ index: 1, type: 'completion', ...more })
  expect(completion({ exit_code: 7, stop_reason: 'error' })).toBe(7)
  expect(completion({ exit_code: 0, stop_reason: 'end_turn' })).toBe(0)
  expect(completion({ stop_reason: 'end_turn' })).toBe(0)
  expect(completion({ stop_reason: 'refusal' })).toBe(1)
  expect(exitCodeOf({ index: 1, type: 'status', status: 'failed' })).toBe(1)
})

test('a turn ends with its completion or with the session', () => {
  expect(isTurnOver({ index: 1, type: 'completion', turn_id: 'a' }, 'a')).toBe(true)
  expect(isTurnOver({ index: 1, type: 'completion', turn_id: 'b' }, 'a')).toBe(false)
  expect(isTurnOver({ index: 1, type: 'status', status: 'failed' }, 'a')).toBe(true)
  expect(isTurnOver({ index: 1, type: 'status', status: 'idle' }, 'a')).toBe(false)
})
