import { expect, test } from 'vitest'
import type { NewEvent } from '../../store/rows/session/events.ts'
import type { SessionRow } from '../../store/rows/session/sessions.ts'
import { fold, usageIn } from './state.ts'

const at = '2026-01-01T00:00:00.000Z'
const row = { status: 'running', turns: 1, input_tokens: 10, output_tokens: 5, cost_usd: 0.5 } as SessionRow
const event = (type: string, data: Record<string, unknown>): NewEvent => ({ type, at, data })

test('text does not change the state', () => {
  expect(fold(row, [event('delta', { text: 'x' }), event('thought', { text: 'y' })])).toEqual({})
})

test('the last status of a batch counts, with its reason and times', () => {
  const change = fold(row, [
    event('status', { status: 'idle' }),
    event('status', { status: 'failed', reason: 'it died' }),
  ])
  expect(change).toMatchObject({ status: 'failed', reason: 'it died', ended_at: at, idle_at: null })
})

test('waiting has the ids that it requires, and running again clears them', () => {
  expect(fold(row, [event('status', { status: 'waiting', requires: ['r1'] })])).toMatchObject({
    requires: '["r1"]',
  })
  expect(fold(row, [event('status', { status: 'running' })])).toMatchObject({
    requires: '[]',
    ended_at: null,
  })
})

test('a status that does not exist is kept as an event only', () => {
  expect(fold(row, [event('status', { status: 'dancing' })])).toEqual({})
})

test('a completion counts a turn and adds its tokens; cost is the highest that was reported', () => {
  const change = fold(row, [
    event('usage', { cost: { amount: 0.75 } }),
    event('completion', {
      final_text: 'done',
      stop_reason: 'end_turn',
      usage: { inputTokens: 3, outputTokens: 4 },
    }),
    event('usage', { cost: { amount: 0.6 } }),
  ])
  expect(change).toMatchObject({
    turns: 2,
    final_text: 'done',
    input_tokens: 13,
    output_tokens: 9,
    cost_usd: 0.75,
  })
})

test('invalid usage is ignored', () => {
  expect(
    fold(row, [event('usage', { cost: { amount: Number.NaN } }), event('usage', { cost: 'much' })]),
  ).toEqual({})
})

test('usage is counted by model, in the hour of the server', () => {
  const session = { ...row, id: 'gogol_1', project_id: 'p', token_id: 'tok_1', model: 'asked' } as SessionRow
  const gateway = { source: 'gateway', model: 'served', input_tokens: 3, output_tokens: 2, cost_usd: 0.25 }
  const events = [
    event('usage', gateway),
    event('usage', gateway),
    event('completion', { usage: { input_tokens: 7, output_tokens: 1, cost_usd: 1.5 } }),
    event('completion', { metered: true, usage: { input_tokens: 9 } }),
    event('message', { text: 'x' }),
  ]
  const now = new Date('2026-01-02T03:44:05Z')
  const common = {
    hour: '2026-01-02T03:00:00.000Z',
    project_id: 'p',
    session_id: 'gogol_1',
    token_id: 'tok_1',
  }
  expect(usageIn(session, events, now)).toEqual([
    { ...common, model: 'served', input_tokens: 6, output_tokens: 4, cost_usd: 0.5 },
    // The agent reports its total, of which the session already has 1.
    { ...common, model: 'asked', input_tokens: 7, output_tokens: 1, cost_usd: 0.5 },
  ])
  const totals = fold(session, events)
  expect(totals).toMatchObject({ input_tokens: 23, output_tokens: 10, cost_usd: 1.5 })
})

test('a number that no column holds is bounded', () => {
  const { input_tokens } = fold(row, [event('completion', { usage: { input_tokens: 1e300 } })])
  expect(input_tokens).toBe(10 + 1e12)
})
