// `./oubliette test`: sets up the machine, checks types, style and unused code, then runs the tests. The last line is
// always `N passed, N failed`, even after an error, because programs parse it.
import { spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { defaultDroids } from '../../../internal/config/default-droids.ts'
import { type Command, checkout, explain, options } from '../command.ts'
import { settings } from '../settings.ts'
import { createProgress } from '../setup/progress.ts'
import { setUp } from '../setup/set-up.ts'

const checks = [
  ['tsc', '--noEmit'],
  ['biome', 'check', '.'],
  ['knip', '--no-progress'],
]

/** Runs a program of node_modules/.bin to its end and forwards signals to it. */
function finish(command: string[], env: NodeJS.ProcessEnv, output: 'inherit' | 'pipe') {
  const [program = '', ...args] = command
  return new Promise<{ code: number; text: string }>((resolve, reject) => {
    const child = spawn(program, args, { cwd: checkout, env, stdio: ['ignore', output, output] })
    const forward = (signal: NodeJS.Signals) => child.kill(signal)
    process.once('SIGTERM', forward).once('SIGINT', forward)
    let text = ''
    for (const stream of [child.stdout, child.stderr])
      stream?.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk
      })
    child.once('error', reject)
    child.once('close', (code) => {
      process.off('SIGTERM', forward).off('SIGINT', forward)
      resolve({ code: code ?? 1, text })
    })
  })
}

async function failedChecks(): Promise<number> {
  let failed = 0
  for (const command of checks) {
    const { code, text } = await finish(command, process.env, 'pipe')
    process.stdout.write(`${code === 0 ? '✓' : '✗'} ${command.join(' ')}\n${code === 0 ? '' : text}`)
    if (code !== 0) failed += 1
  }
  return failed
}

type Report = {
  numPassedTests: number
  testResults: { status: string; assertionResults: { status: string }[] }[]
}

/** Counts of a vitest JSON report. A file that failed without a failed test counts as one failure. */
export function countTests(report: Report): { passed: number; failed: number } {
  let failed = 0
  for (const file of report.testResults) {
    const inside = file.assertionResults.filter((test) => test.status === 'failed').length
    failed += inside === 0 && file.status === 'failed' ? 1 : inside
  }
  return { passed: report.numPassedTests, failed }
}

const agentImages = Object.values(defaultDroids).flatMap(({ image }) => image ?? [])
/** The image of the agent that the memory suite uses. */
const chaosImages = [defaultDroids.opencode?.image ?? []].flat()

async function runVitest(filters: string[], env: NodeJS.ProcessEnv) {
  const folder = mkdtempSync(join(tmpdir(), 'oubliette-test-'))
  const file = join(folder, 'report.json')
  try {
    const command = [
      'vitest',
      'run',
      '--reporter=default',
      '--reporter=json',
      `--outputFile.json=${file}`,
      ...filters,
    ]
    const { code } = await finish(command, env, 'inherit')
    return { code, ...countTests(JSON.parse(readFileSync(file, 'utf8')) as Report) }
  } catch (error) {
    process.stderr.write(`oubliette: failed to read the report of vitest: ${error}\n`)
    return { code: 1, passed: 0, failed: 1 }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

async function run(args: string[]): Promise<number> {
  const { values, positionals } = options(
    args,
    {
      chaos: { type: 'boolean', default: false },
      agents: { type: 'boolean', default: false },
      clients: { type: 'boolean', default: false },
    },
    true,
  )
  const filters = [
    ...positionals,
    ...(values.chaos ? ['chaos'] : []),
    ...(values.agents ? ['agents'] : []),
    ...(values.clients ? ['suites/clients'] : []),
  ]
  const env = {
    ...process.env,
    ...(values.chaos ? { OUBLIETTE_TEST_CHAOS: '1' } : {}),
    ...(values.agents ? { OUBLIETTE_TEST_AGENTS: '1' } : {}),
    ...(values.clients ? { OUBLIETTE_TEST_CLIENTS: '1' } : {}),
  }
  let outcome: { code: number; passed: number; failed: number }
  try {
    const begun = performance.now()
    const progress = createProgress()
    await setUp(settings(), progress, { also: values.agents ? agentImages : values.chaos ? chaosImages : [] })
    progress.step(`set-up took ${((performance.now() - begun) / 1000).toFixed(1)} s`)
    const failed = filters.length === 0 ? await failedChecks() : 0
    // One of these suites kills the engine, and with it the containers of all others.
    const alone = values.chaos ? ['--no-file-parallelism'] : []
    const tests = await runVitest([...alone, ...filters], env)
    outcome = {
      code: tests.code || (failed > 0 ? 1 : 0),
      passed: tests.passed,
      failed: tests.failed + failed,
    }
  } catch (error) {
    outcome = { code: explain(error), passed: 0, failed: 1 }
  }
  process.stdout.write(`${outcome.passed} passed, ${outcome.failed} failed\n`)
  return outcome.code
}

export const test: Command = {
  about: 'Set up this machine and run the tests',
  usage: '[OPTIONS] [SUITE...]',
  details: `Runs the test files whose path contains SUITE. Without SUITE and options, checks types, style and unused code, and
runs all tests except those of --chaos, --agents and --clients.`,
  options: [
    ['--chaos', 'Run the suites that kill servers, containers and engines'],
    ['--agents', 'Run the suites that use real agents with a scripted model'],
    ['--clients', 'Run the suites of MCP clients, with the agents that take long to install'],
  ],
  examples: ['./oubliette test', './oubliette test session/run', './oubliette test --chaos'],
  run,
}
