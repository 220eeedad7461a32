// Every metric and every label of the dashboard and of the alerts exists at /metrics.
import { readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createMetrics } from '../../../internal/metrics/metrics.ts'
import { type Booted, boot } from '../../harness/booted.ts'

const folder = resolve(import.meta.dirname, '../../../docs/monitoring')
type Dashboard = { panels: { title: string; targets: { expr: string; legendFormat: string }[] }[] }

let booted: Booted
/** By name of a metric, the labels that its samples have. */
const metrics = new Map<string, Set<string>>()
beforeAll(async () => {
  booted = await boot()
  await booted.ok('project', { action: 'list' })
  const served = await (await fetch(`${booted.server.url}/metrics`)).text()
  // Model requests have no samples before the first one; their labels are those of the same code.
  const own = createMetrics()
  own.model({ provider: 'anthropic', input_tokens: 1, output_tokens: 1, cost_usd: 1 })
  for (const line of `${served}\n${await own.render()}`.split('\n')) {
    const [, name, labels = ''] = /^([a-z0-9_]+)(?:\{(.*)\})? \S+$/.exec(line) ?? []
    if (!name) continue
    const known = metrics.get(name) ?? new Set()
    for (const [, label] of labels.matchAll(/([a-z_]+)="/g)) known.add(label!)
    metrics.set(name, known)
    // A metric that only the second text has would not be served.
    if (!served.includes(name)) metrics.delete(name)
  }
  // Prometheus adds these.
  metrics.set('up', new Set())
})
afterAll(() => booted?.stop())

/** What an expression asks for that does not exist. */
function unknownIn(expr: string): string[] {
  const used = [...expr.matchAll(/\b((?:oubliette|nodejs|process)_[a-z0-9_]+|up)\b(?:\{([^}]*)\})?/g)]
  if (used.length === 0) return ['no metric']
  const grouped = [...expr.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, names]) => names!.split(/,\s*/))
  return used.flatMap(([, name, selector = '']) => {
    const labels = metrics.get(name!)
    if (!labels) return [name!]
    const wanted = [...[...selector.matchAll(/([a-z_]+)\s*[=!]/g)].map(([, label]) => label!), ...grouped]
    return wanted.filter((label) => label !== 'job' && !labels.has(label)).map((label) => `${name}{${label}}`)
  })
}

test('of the dashboard', () => {
  const { panels } = JSON.parse(readFileSync(join(folder, 'dashboard.json'), 'utf8')) as Dashboard
  expect(panels.length).toBeGreaterThan(15)
  const targets = panels.flatMap((panel) => panel.targets)
  expect(targets.flatMap(({ expr }) => unknownIn(expr))).toEqual([])
  const legends = targets.flatMap(({ expr, legendFormat }) =>
    [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].flatMap(([, label]) => unknownIn(`${expr} by (${label})`)),
  )
  expect(legends).toEqual([])
})

test('of the alerts', () => {
  const rules = [...readFileSync(join(folder, 'alerts.yaml'), 'utf8').matchAll(/^ +expr: (.*)$/gm)]
  expect(rules.length).toBeGreaterThan(10)
  expect(rules.flatMap(([, expr]) => unknownIn(expr!))).toEqual([])
})

test('and what does not exist is found', () => {
  expect(unknownIn('rate(oubliette_nothing_total[5m])')).toEqual(['oubliette_nothing_total'])
  expect(unknownIn('oubliette_sessions{state="idle"}')).toEqual(['oubliette_sessions{state}'])
  expect(unknownIn('sum by (toll) (oubliette_tool_calls_total)')).toEqual([
    'oubliette_tool_calls_total{toll}',
  ])
})
