import { expect, it } from 'vitest'
import { endingOf } from './outcome.ts'

const completion = (data: Record<string, unknown>) => ({
  type: 'completion',
  data: { turn_id: 't', ...data },
})
const status = (name: string, reason?: string) => ({ type: 'status', data: { status: name, reason } })

it.each([
  [completion({ final_text: 'done', stop_reason: 'end_turn', exit_code: 0 }), 'success', 'done', null],
  [completion({ final_text: '', stop_reason: 'end_turn' }), 'success', null, null],
  [
    completion({ final_text: 'x', stop_reason: 'error', exit_code: 3, error: 'exit 3' }),
    'failed',
    'x',
    /exit 3/,
  ],
  [completion({ final_text: 'x', stop_reason: 'end_turn', exit_code: 3 }), 'failed', 'x', /exit code 3/],
  [completion({ stop_reason: 'refusal' }), 'failed', null, /refusal/],
  [completion({ final_text: 'x', stop_reason: 'cancelled' }), 'cancelled', 'x', /cancelled/],
  [completion({ stop_reason: 'not_run' }), 'cancelled', null, /ended before/],
  [status('failed', 'the container was stopped'), 'failed', null, /container was stopped/],
  [status('cancelled'), 'cancelled', null, /was ended$/],
  [status('completed', 'ended'), 'cancelled', null, /ended: ended/],
])('%j is %s', (event, name, output, error) => {
  const ending = endingOf('t', event)
  expect(ending).toMatchObject({ status: name, output })
  if (error) expect(ending?.error).toMatch(error)
  else expect(ending?.error).toBeNull()
})

it.each([
  status('running'),
  status('idle'),
  completion({ turn_id: 'another', stop_reason: 'end_turn' }),
  { type: 'message', data: { turn_id: 't' } },
])('%j is no end', (event) => {
  expect(endingOf('t', event)).toBeUndefined()
})

it('keeps no more of a final text than a row should hold', () => {
  const long = endingOf('t', completion({ final_text: 'a'.repeat(200_000), stop_reason: 'end_turn' }))
  expect(long?.output).toHaveLength(100_000)
})
