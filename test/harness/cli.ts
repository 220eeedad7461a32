// The command line as a person uses it: arguments and environment in, text and an exit code out.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join, resolve } from 'node:path'

const checkout = resolve(import.meta.dirname, '../..')
const main = join(checkout, 'cmd/oubliette-server/main.ts')

/** As `runCli`, with a terminal of 80 columns: its output is what a person would see, in the order of writing. */
export async function runOnTerminal(
  args: string[],
  env: Record<string, string>,
  deadline_ms = 30_000,
): Promise<{ code: number | null; output: string }> {
  const quoted = [process.execPath, main, ...args].map((word) => `'${word.replaceAll("'", `'\\''`)}'`)
  const command = `stty cols 80; exec ${quoted.join(' ')}`
  const child = spawn('script', ['--quiet', '--return', '--command', command, '/dev/null'], {
    cwd: checkout,
    env: { ...cleanEnvironment(), ...env, TERM: 'xterm' },
    // Its standard input must not end before the command does.
    stdio: ['pipe', 'pipe', 'ignore'],
    signal: AbortSignal.timeout(deadline_ms),
    killSignal: 'SIGKILL',
  })
  let output = ''
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    output += chunk
  })
  child.on('error', () => undefined)
  const [code] = (await once(child, 'close')) as [number | null]
  return { code, output }
}

/** The environment of the tests without what would make the program another one. */
const cleanEnvironment = (): Record<string, string | undefined> =>
  Object.fromEntries(
    Object.entries(process.env).filter(
      ([name]) => !/^(OUBLIETTE_|DATABASE_URL$|VITEST|NODE_OPTIONS$)/.test(name),
    ),
  )

export type Finished = { code: number | null; stdout: string; stderr: string }

/** Runs to its end; killed at the deadline, which shows as a code of null. */
export async function runCli(
  args: string[],
  env: Record<string, string>,
  deadline_ms = 30_000,
): Promise<Finished> {
  const child = spawn(process.execPath, [main, ...args], {
    cwd: checkout,
    env: { ...cleanEnvironment(), ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    signal: AbortSignal.timeout(deadline_ms),
    killSignal: 'SIGKILL',
  })
  const out = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const)
    child[name].setEncoding('utf8').on('data', (chunk: string) => {
      out[name] += chunk
    })
  child.on('error', () => undefined)
  const [code] = (await once(child, 'close')) as [number | null]
  return { code, ...out }
}
