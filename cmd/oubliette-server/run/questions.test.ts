import { expect, test } from 'vitest'
import { createOpenQuestions, parseAnswer, questionOf } from './questions.ts'

const asks = (request_id: string) => ({ index: 1, type: 'permission_request', request_id, options: [] })

test('"always" is a choice only for what the server remembers', () => {
  const tool = { index: 1, type: 'tool_approval_request', kind: 'tool', request_id: 'a' }
  expect(questionOf(tool, true).always).toBe(true)
  expect(questionOf(tool, false).always).toBe(false)
  expect(questionOf({ ...tool, kind: 'definition' }, true).always).toBe(false)
  expect(questionOf(asks('a'), true).always).toBe(false)
})

test('an elicitation is not a question of yes or no', () => {
  const open = createOpenQuestions()
  open.take({ index: 1, type: 'tool_approval_request', kind: 'elicitation', request_id: 'a' })
  expect(open.first).toBeUndefined()
  open.take({ index: 2, type: 'tool_approval_request', kind: 'definition', request_id: 'b' })
  expect(open.first?.request_id).toBe('b')
})

test('only a clear answer is an answer', () => {
  const once = { always: false }
  expect(['y', ' YES ', 'n', 'no'].map((line) => parseAnswer(line, once))).toEqual([
    'allow',
    'allow',
    'deny',
    'deny',
  ])
  for (const line of ['', 'maybe', 'yes please', 'a', 'toString', '__proto__'])
    expect(parseAnswer(line, once)).toBeUndefined()
  expect(parseAnswer('a', { always: true })).toBe('always')
})

test('a question is open until it is decided, here or elsewhere, or withdrawn with its turn', () => {
  const open = createOpenQuestions()
  open.take(asks('a'))
  open.take(asks('b'))
  open.take({ index: 2, type: 'status', status: 'running' })
  expect(open.first?.request_id).toBe('a')
  open.take({ index: 3, type: 'tool_approval_decision', request_id: 'a', decision: 'deny' })
  expect(open.first?.request_id).toBe('b')
  open.answered('b')
  expect(open.first).toBeUndefined()
  for (const over of [
    { index: 5, type: 'completion' },
    { index: 5, type: 'status', status: 'idle' },
    { index: 5, type: 'status', status: 'failed' },
  ]) {
    open.take(asks('c'))
    open.take(over)
    expect(open.first).toBeUndefined()
  }
})
