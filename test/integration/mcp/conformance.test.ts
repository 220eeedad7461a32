// The official conformance suite, against both protocol revisions, every scored server scenario.
import { spawn } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startConformanceServer } from '../../fixtures/conformance/server.ts'

type Check = { id: string; status: string; errorMessage?: string }

const require = createRequire(import.meta.url)
const suite = dirname(require.resolve('@modelcontextprotocol/conformance/package.json'))
let server: Awaited<ReturnType<typeof startConformanceServer>>
let results: string

beforeAll(async () => {
  server = await startConformanceServer()
  results = await mkdtemp(join(tmpdir(), 'oub-conformance-'))
})
afterAll(async () => {
  await server?.close()
  await rm(results, { recursive: true, force: true })
})

/** What the suite's own requirement file counts for a server. */
async function scored(revision: string): Promise<string[]> {
  const text = await readFile(join(suite, 'requirements', `${revision}.yaml`), 'utf8')
  const section = /^server:\n((?: {2}- .+\n)+)/m.exec(text)?.[1] ?? ''
  return section.split('\n').flatMap((line) => line.match(/^ {2}- (\S+)$/)?.[1] ?? [])
}

async function run(revision: string): Promise<{ output: string; code: number | null }> {
  const child = spawn(
    process.execPath,
    [
      join(suite, 'dist/index.js'),
      'server',
      '--url',
      server.url,
      '--requirements',
      revision,
      '-o',
      join(results, revision),
    ],
    { stdio: ['ignore', 'pipe', 'pipe'] },
  )
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => {
      output += chunk.toString()
    })
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve))
  return { output, code }
}

/** The checks of each scenario that ran, from the files that the suite leaves. */
async function checksOf(revision: string): Promise<Map<string, Check[]>> {
  const found = new Map<string, Check[]>()
  for (const folder of await readdir(join(results, revision))) {
    const scenario = /^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$/.exec(folder)?.[1]
    if (!scenario) throw new Error(`the suite names its results in another way now: ${folder}`)
    found.set(scenario, JSON.parse(await readFile(join(results, revision, folder, 'checks.json'), 'utf8')))
  }
  return found
}

test.each([
  { revision: '2025-11-25', scenarios: 30 },
  { revision: '2026-07-28', scenarios: 37 },
])(
  'every scored server scenario of $revision passes',
  { timeout: 180_000 },
  async ({ revision, scenarios }) => {
    const required = await scored(revision)
    expect(required).toHaveLength(scenarios)
    const { output, code } = await run(revision)
    const checks = await checksOf(revision)

    const problems = required.flatMap((scenario) => {
      const done = checks.get(scenario)
      if (!done) return [`${scenario}: did not run`]
      const passed = done.filter(({ status }) => status === 'SUCCESS')
      if (passed.length === 0) return [`${scenario}: no check ran`]
      // A warning is a recommendation that was not followed, and a skipped check is one that proved nothing.
      return done
        .filter(({ status }) => status !== 'SUCCESS' && status !== 'INFO')
        .map(({ id, status, errorMessage }) => `${scenario}: ${id} ${status} ${errorMessage ?? ''}`)
    })
    expect(problems).toEqual([])
    expect(code, output.slice(-2000)).toBe(0)
  },
)
