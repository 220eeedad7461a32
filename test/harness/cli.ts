// The command line as a person uses it: arguments and environment in, text and an exit code out.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join, resolve } from 'node:path'

const checkout = resolve(import.meta.dirname, '../..')
const main = join(checkout, 'cmd/oubliette-server/main.ts')

export type Finished = { code: number | null; stdout: string; stderr: string }

/** Runs to its end; killed at the deadline, which shows as a code of null. */
export async function runCli(
  args: string[],
  env: Record<string, string>,
  deadline_ms = 30_000,
): Promise<Finished> {
  const rest = Object.entries(process.env).filter(
    ([name]) => !/^(OUBLIETTE_|DATABASE_URL$|VITEST|NODE_OPTIONS$)/.test(name),
  )
  const child = spawn(process.execPath, [main, ...args], {
    cwd: checkout,
    env: { ...Object.fromEntries(rest), ...env },
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
