// The servers that are compared, each in a process of its own.
import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { freePort } from '../../test/harness/free-port.ts'
import { type Era, openSession, resultIn, rpc } from '../../test/harness/rpc.ts'

const checkout = resolve(import.meta.dirname, '../..')
// For a look inside: NODE_FLAGS="--cpu-prof --cpu-prof-dir=/somewhere".
const flags = process.env.NODE_FLAGS?.split(' ').filter(Boolean) ?? []

export type Subject = {
  pid: number
  url: string
  token: string
  call: Record<string, unknown>
  stop(): Promise<void>
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = once(child, 'exit')
  child.kill('SIGTERM')
  await ended
}

export async function startBare(variant: 'plain' | 'tuned'): Promise<Subject> {
  const child = spawn(process.execPath, [join(import.meta.dirname, 'bare.ts'), variant], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [port] = (await once(child.stdout, 'data')) as [Buffer]
  return {
    pid: child.pid!,
    url: `http://127.0.0.1:${Number(port.toString())}`,
    token: 'none',
    call: { name: 'empty', arguments: {} },
    stop: () => end(child),
  }
}

export async function startOubliette(more: Record<string, unknown> = {}): Promise<Subject> {
  const home = await mkdtemp(join(tmpdir(), 'oub-bench-'))
  const most = 1_000_000_000
  const config = {
    rate: { per_token_per_second: most, per_token_burst: most },
    log: { level: 'warn' },
    ...more,
  }
  await writeFile(join(home, 'oubliette.jsonc'), JSON.stringify(config), { mode: 0o600 })
  const token = `oub_${randomBytes(32).toString('hex')}`
  const address = `127.0.0.1:${await freePort()}`
  const { DATABASE_URL: _, ...env } = process.env
  const child = spawn(process.execPath, [...flags, join(checkout, 'cmd/oubliette-server/main.ts'), 'serve'], {
    stdio: ['ignore', 'inherit', 'inherit'],
    env: { ...env, OUBLIETTE_HOME: home, OUBLIETTE_ADDRESS: address, OUBLIETTE_ADMIN_TOKEN: token },
  })
  const url = `http://${address}`
  const stop = async () => {
    await end(child)
    await rm(home, { recursive: true, force: true })
  }
  try {
    for (let left = 300; ; left--) {
      if (left === 0 || child.exitCode !== null) throw new Error('the server did not become ready')
      const ready = await fetch(`${url}/readyz`).catch(() => undefined)
      if (ready?.ok) break
      await pause(100)
    }
    const create = { name: 'project', arguments: { action: 'create', name: 'bench' } }
    const { structuredContent } = resultIn(await rpc(url, token, 'tools/call', create))
    const { project_id } = structuredContent as { project_id: string }
    return {
      pid: child.pid!,
      url,
      token,
      call: { name: 'project', arguments: { action: 'get', project_id } },
      stop,
    }
  } catch (error) {
    await stop()
    throw error
  }
}

/** The session of the older era, opened once; the newer one has none. */
export const sessionFor = async (subject: Subject, era: Era): Promise<string | undefined> =>
  era === '2025-11-25' ? await openSession(subject.url, subject.token) : undefined
