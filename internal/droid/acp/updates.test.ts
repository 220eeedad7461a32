import { expect, test } from 'vitest'
import type { DroidEvent } from '../droid.ts'
import { boundedLines } from './stream.ts'
import { createUpdates, eventOf } from './updates.ts'

const chunk = (kind: string, text: string) => ({ sessionUpdate: kind, content: { type: 'text', text } })

test('chunks are gathered and told as a whole when something else follows', () => {
  const events: DroidEvent[] = []
  const updates = createUpdates((event) => events.push(event))
  updates.beginTurn('t')
  updates.take(chunk('agent_thought_chunk', 'hm'))
  updates.take(chunk('agent_message_chunk', 'Hel'))
  updates.take(chunk('agent_message_chunk', 'lo'))
  updates.take({
    sessionUpdate: 'tool_call',
    toolCallId: 'c',
    title: 'ls',
    kind: 'execute',
    rawInput: { a: 1 },
  })
  updates.take({ sessionUpdate: 'tool_call_update', toolCallId: 'c', status: 'in_progress' })
  updates.take({ sessionUpdate: 'tool_call_update', toolCallId: 'c', status: 'completed', rawOutput: 'out' })
  updates.take(chunk('agent_message_chunk', 'Bye'))
  expect(updates.endTurn()).toBe('Bye')
  const turn_id = 't'
  expect(events).toEqual([
    { type: 'thought', turn_id, text: 'hm' },
    { type: 'delta', turn_id, role: 'assistant', text: 'Hello' },
    { type: 'message', turn_id, role: 'assistant', text: 'Hello' },
    { type: 'tool_call', turn_id, tool_call_id: 'c', title: 'ls', kind: 'execute', input: { a: 1 } },
    { type: 'tool_call', turn_id, tool_call_id: 'c', status: 'in_progress', partial: true },
    { type: 'tool_result', turn_id, tool_call_id: 'c', status: 'completed', output: 'out' },
    { type: 'delta', turn_id, role: 'assistant', text: 'Bye' },
    { type: 'message', turn_id, role: 'assistant', text: 'Bye' },
  ])
})

test('kinds without a type of their own are kept as they came', () => {
  expect(eventOf({ sessionUpdate: 'plan', entries: [1] })).toEqual({ type: 'plan', entries: [1] })
  expect(eventOf({ sessionUpdate: 'usage_update', used: 1, size: 2 })).toEqual({
    type: 'usage',
    used: 1,
    size: 2,
  })
  const update = { sessionUpdate: 'from_the_future', x: { y: 1 } }
  expect(eventOf(update)).toEqual({ type: 'update', update })
  const image = { sessionUpdate: 'agent_message_chunk', content: { type: 'image', data: 'AA==' } }
  expect(eventOf(image)).toEqual({ type: 'update', update: image })
})

test('a line without an end is not gathered for ever, and the next one is read', async () => {
  async function* input() {
    for (const part of ['ab', 'c\nxxxx', 'xxxxxxxx', 'xxxx\nlast', '\n', 'torn']) yield Buffer.from(part)
  }
  const lines = await Array.fromAsync(boundedLines(input(), 10))
  expect(lines).toEqual([
    { text: 'abc', too_long: false },
    { text: 'xxxxxxxxxxxx', too_long: true },
    { text: 'last', too_long: false },
  ])
})
