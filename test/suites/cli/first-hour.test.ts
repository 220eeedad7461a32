// The first hour of a new user: the commands of docs/first-hour.md in a terminal of 80 columns, on a real server of its own. The
// page shows what the terminal shows, and README.md names no command that is not on the page. OUBLIETTE_TEST_UPDATE=1 writes
// both.
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { build } from 'esbuild'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { consoleText, parsePage, type Step, shellLines } from '../../fixtures/first-hour/page.ts'
import { createStandIns } from '../../fixtures/first-hour/stand-ins.ts'
import { openShell, type TypedShell } from '../../fixtures/first-hour/typed-shell.ts'
import { keys, type Terminal } from '../../fixtures/terminal/terminal.ts'
import { runCli } from '../../harness/cli.ts'
import { removeInstance } from '../../harness/docker.ts'
import { freePort } from '../../harness/free-port.ts'

const checkout = resolve(import.meta.dirname, '../../..')
const file = join(checkout, 'docs/first-hour.md')
const page = readFileSync(file, 'utf8')
const readmeFile = join(checkout, 'README.md')
const readme = readFileSync(readmeFile, 'utf8')
const pictures = parsePage(readme)
const agent = '.coder/agent.mjs'

let folder: string
let env: Record<string, string>
let standIns: (rows: string[]) => string[]
const shells: TypedShell[] = []

beforeAll(async () => {
  // In a checkout with a new lock file, the first command would install packages.
  execFileSync(join(checkout, 'oubliette'), ['version'])
  folder = await mkdtemp(join(tmpdir(), 'oub-hour-'))
  const port = await freePort()
  const home = join(folder, '.oubliette')
  await mkdir(home)
  for (const name of ['oubliette', 'examples']) await symlink(join(checkout, name), join(folder, name))
  const coder = { kind: 'acp', command: '/opt/oubliette/node', args: [`/workspaces/default/${agent}`] }
  await writeFile(join(home, 'oubliette.jsonc'), JSON.stringify({ droids: { coder } }), { mode: 0o600 })
  env = {
    OUBLIETTE_HOME: home,
    OUBLIETTE_ADDRESS: `127.0.0.1:${port}`,
    OUBLIETTE_URL: `http://127.0.0.1:${port}`,
    HOME: folder,
    ANTHROPIC_API_KEY: '',
  }
  standIns = createStandIns({ folder, port })
})
afterAll(async () => {
  for (const shell of shells) shell.close()
  await runCli(['down', '--all'], env)
  const instance = join(env.OUBLIETTE_HOME!, 'instance-id')
  if (existsSync(instance)) await removeInstance((await readFile(instance, 'utf8')).trim())
  await rm(folder, { recursive: true, force: true })
})

const ok = async (args: string[]) => expect(await runCli(args, env)).toMatchObject({ code: 0 })

/** What the agent of the page finds: itself, a function, and a test of it that fails. */
async function prepareAgent(): Promise<void> {
  const bundle = join(folder, agent)
  await build({
    entryPoints: [join(checkout, 'test/agents/fixing-agent.ts')],
    outfile: bundle,
    bundle: true,
    platform: 'node',
    format: 'esm',
    banner: { js: "import{createRequire as r}from'node:module';const require=r(import.meta.url);" },
  })
  const sum = 'export function sum(a, b) {\n  return a - b\n}\n'
  const sumTest =
    "import { strictEqual } from 'node:assert'\nimport { sum } from './sum.mjs'\nstrictEqual(sum(1, 2), 3, 'sum(1, 2) is not 3')\n"
  await ok(['cp', dirname(bundle), 'demo:.'])
  await ok(['workspace', 'write-file', 'demo', 'sum.mjs', sum])
  await ok(['workspace', 'write-file', 'demo', 'sum.test.mjs', sumTest])
}

type Play = { before?: () => Promise<void>; meanwhile?: (terminal: Terminal) => Promise<void> }

/** What a person does besides typing the command, by the beginning of the command. */
const plays: [start: string, play: Play][] = [
  ['./oubliette run --project demo --droid coder', { before: prepareAgent, meanwhile: allow }],
  ['./oubliette chat', { meanwhile: converse }],
]

async function allow(terminal: Terminal): Promise<void> {
  await terminal.shows('Allow? [y]es, [n]o', 30_000)
  terminal.type(`y${keys.enter}`)
}

async function converse(terminal: Terminal): Promise<void> {
  await terminal.shows('Ctrl-D to leave')
  terminal.type(`what was wrong?${keys.enter}`)
  await terminal.shows(/now it adds them[\s\S]*done in[\s\S]*\n>$/)
  terminal.type(keys.ctrl_d)
}

const { blocks, render } = parsePage(page)
const steps = blocks.flat()
/** The steps as they are on the page, before the run replaces what they show. */
const expected = steps.map((step) => ({ ...step, shown: [...step.shown] }))

async function play(shell: TypedShell, step: Step, second: Step[] = []): Promise<void> {
  const act = plays.find(([start]) => step.command.startsWith(start))?.[1] ?? {}
  await act.before?.()
  const { rows, code, wrapped } = await shell.run(step.command, async (terminal) => {
    await act.meanwhile?.(terminal)
    if (second.length === 0) return
    await terminal.shows(/\n2\n/, 30_000)
    const other = await openShell(folder, env)
    shells.push(other)
    for (const one of second) await play(other, one)
  })
  expect(wrapped, `${step.command} shows lines wider than the terminal`).toEqual([])
  step.shown = standIns(rows)
  // The exit code agrees with what is shown.
  const isFailure = step.shown.some((line) => /^(oubliette: (?!copied)|✗ exit|status +stopped)/.test(line))
  expect(code !== 0, `${step.command} exits with ${code}`).toBe(isFailure)
}

describe('the first hour', () => {
  test('looks in the terminal as docs/first-hour.md shows it', async () => {
    const shell = await openShell(folder, env)
    shells.push(shell)
    for (const [at, block] of blocks.entries()) {
      if (block[0]?.second) continue
      const next = blocks[at + 1]
      for (const step of block) await play(shell, step, next?.[0]?.second ? next : [])
    }
    if (!process.env.OUBLIETTE_TEST_UPDATE) return expect(steps).toEqual(expected)
    writeFileSync(file, render())
    for (const picture of pictures.blocks.flat())
      picture.shown = steps.find(({ command }) => command === picture.command)?.shown ?? []
    writeFileSync(readmeFile, pictures.render())
  }, 180_000)

  test('every line fits 80 columns and says something', () => {
    for (const { command, shown } of steps) {
      expect(`$ ${command}`.length, command).toBeLessThanOrEqual(80)
      for (const line of shown) {
        expect(line.length, line).toBeLessThanOrEqual(80)
        expect(line, command).not.toMatch(/undefined|\[object |\bNaN\b|^oubliette: *$/)
      }
      // Rows of a table begin where its header begins: a wrapped row would not.
      const header = shown.findIndex((line) => /^[A-Z]{2,}( {2,}[A-Z]+)+$/.test(line))
      if (header >= 0) for (const row of shown.slice(header + 1)) expect(row, command).toMatch(/^\S+ {2,}\S/)
    }
  })
})

describe('README.md', () => {
  /** Lines that need another machine, or a key. */
  const exceptions = [/^git clone /, /^export ANTHROPIC_API_KEY=/, /^\.\/oubliette mcp setup claude-code$/]

  test('every command is a step of docs/first-hour.md', () => {
    const lines = shellLines(readme)
    expect(lines.length).toBeGreaterThan(5)
    const known = new Set(expected.map(({ command }) => command))
    const unknown = lines.filter((line) => !known.has(line) && !exceptions.some((one) => one.test(line)))
    expect(unknown).toEqual([])
  })

  test('its transcript is one of docs/first-hour.md', () => {
    const shown = pictures.blocks.flat()
    expect(shown.length).toBeGreaterThan(0)
    const texts = steps.map((step) => consoleText([step]))
    for (const step of shown) expect(texts).toContain(consoleText([step]))
  })
})
