// Help texts: every command and every action has one, with an example and its options, and no line exceeds the terminal.
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { runCli } from '../../harness/cli.ts'

const checkout = resolve(import.meta.dirname, '../../..')
const script = join(checkout, 'oubliette')
type Entry = { unified: boolean; actions: Record<string, { fields: { name: string }[] }> }
const manifest = JSON.parse(
  readFileSync(join(checkout, 'cmd/oubliette-server/tool-command/manifest.json'), 'utf8'),
) as Record<string, Entry>
const kebab = (name: string) => name.replaceAll('_', '-')

const help = async (words: string[], env: Record<string, string> = {}): Promise<string> => {
  const { code, stdout, stderr } = await runCli([...words, '--help'], env)
  expect([code, stderr]).toEqual([0, ''])
  return stdout
}
const widest = (text: string) => Math.max(...text.split('\n').map((line) => line.length))

let overview: string
beforeAll(async () => {
  overview = await help([])
})

test('the overview names every command', () => {
  expect(widest(overview)).toBeLessThanOrEqual(80)
  for (const name of Object.keys(manifest)) expect(overview).toMatch(new RegExp(`^  ${kebab(name)} `, 'm'))
})

test('every command has an example, and fits 80 columns in a pipe', async () => {
  const names = [...overview.matchAll(/^ {2}([a-z][a-z-]+) {2,}\S/gm)].map(([, name]) => name!)
  expect(names.length).toBeGreaterThan(20)
  for (const name of names) {
    const text = await help([name])
    expect(text, name).toMatch(new RegExp(`^Usage: ./oubliette ${name}`))
    expect(text, name).toMatch(/^Options:\n/m)
    expect(text, name).toMatch(new RegExp(`^Examples:\n(.*\n)* .*oubliette ${name}`, 'm'))
    expect(widest(text), name).toBeLessThanOrEqual(80)
  }
}, 120_000)

describe.each(Object.entries(manifest))('%s', (tool, { unified, actions }) => {
  test.each(Object.entries(actions))('%s shows every option and an example', async (action, { fields }) => {
    const words = unified ? [kebab(tool), kebab(action)] : [kebab(tool)]
    const text = await help(words)
    for (const { name } of fields) expect(text).toContain(`--${kebab(name)}`)
    expect(text).toContain('--output FORMAT')
    expect(text).toMatch(new RegExp(`^Examples:\n  ./oubliette ${words.join(' ')}`, 'm'))
    expect(widest(text)).toBeLessThanOrEqual(80)
  })
})

test('a wider terminal gets longer lines, a narrower one shorter lines', async () => {
  expect(widest(await help(['session', 'spawn'], { COLUMNS: '120' }))).toBeGreaterThan(85)
  expect(widest(await help(['run'], { COLUMNS: '60' }))).toBeLessThanOrEqual(60)
})

test('the overview takes at most 2.5 times as long as the start of Node', () => {
  const time = (command: string, args: string[]) => {
    const started_ms = performance.now()
    const env = { PATH: `${join(process.execPath, '..')}:${process.env.PATH}` }
    expect(spawnSync(command, args, { env }).status).toBe(0)
    return performance.now() - started_ms
  }
  // The first run fills the cache of compiled modules.
  time(script, ['--help'])
  const measured = Array.from({ length: 15 }, () => ({
    bare: time(process.execPath, ['-e', '0']),
    help: time(script, ['--help']),
  }))
  const median = (name: 'bare' | 'help') =>
    measured.map((times) => times[name]).sort((a, b) => a - b)[Math.floor(measured.length / 2)]!
  const ratio = median('help') / median('bare')
  console.log(`--help: ${median('help').toFixed(0)} ms, ${ratio.toFixed(2)} × node -e 0`)
  expect(ratio).toBeLessThanOrEqual(2.5)
})
