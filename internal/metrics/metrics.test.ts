import { expect, test } from 'vitest'
import { createMetrics } from './metrics.ts'

test('counts, durations and readings are in the text', async () => {
  const metrics = createMetrics()
  for (let number = 0; number < 3; number++)
    metrics.call({ tool: 'project', action: 'get', outcome: 'ok', seconds: 0.004 })
  metrics.request({ route: '/mcp', method: 'POST', status: 200, seconds: 0.001 })
  metrics.events(7)
  metrics.model({ provider: 'anthropic', input_tokens: 10, output_tokens: 5, cost_usd: 0.5 })
  metrics.gauge('one', 'A number.', () => 4)
  metrics.gauge('several', 'Numbers.', async () => new Map([['a', 1]]), 'kind')
  metrics.gauge('failing', 'A number.', () => {
    throw new Error('not now')
  })
  const text = await metrics.render()
  for (const line of [
    'oubliette_tool_calls_total{tool="project",action="get",outcome="ok"} 3',
    'oubliette_tool_call_duration_seconds_bucket{le="0.005",tool="project",action="get"} 3',
    'oubliette_tool_call_duration_seconds_bucket{le="0.002",tool="project",action="get"} 0',
    'oubliette_http_requests_total{route="/mcp",method="POST",status="200"} 1',
    'oubliette_events_total 7',
    'oubliette_model_tokens_total{provider="anthropic",direction="input"} 10',
    'oubliette_model_cost_usd_total{provider="anthropic"} 0.5',
    'one 4',
    'several{kind="a"} 1',
  ])
    expect(text.split('\n')).toContain(line)
  expect(text).toContain('nodejs_eventloop_lag_p99_seconds')
  expect(text).not.toMatch(/^failing /m)
})

test('a method that a caller invents is not a label', async () => {
  const metrics = createMetrics()
  metrics.request({ route: 'other', method: 'INVENTED', status: 405, seconds: 0 })
  expect(await metrics.render()).toContain('{route="other",method="other",status="405"} 1')
})

test('scrapes at the same time share one reading', async () => {
  const metrics = createMetrics()
  let readings = 0
  metrics.gauge('read', 'A number.', () => ++readings)
  await Promise.all(Array.from({ length: 100 }, () => metrics.render()))
  expect(readings).toBe(1)
})
