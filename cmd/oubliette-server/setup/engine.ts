// Ensures a running Docker engine. A reachable engine is used as it is. If none is reachable and the machine may be changed
// (Debian or Ubuntu, root, no DOCKER_HOST), the distribution's docker.io is installed and started with live-restore, so
// that containers survive a restart of the engine. Otherwise the error message states what to do.

import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Fault, messageOf } from '../../../internal/fault.ts'
import { isRoot } from '../../../internal/lib/is-root.ts'
import type { Runtime } from '../../../internal/runtime/runtime.ts'
import type { Progress } from './progress.ts'

type Engine = Pick<Runtime, 'ping'>
type Version = { engine: string; version: string }

const daemon_json = '/etc/docker/daemon.json'
const start_deadline_ms = 60_000

const read = (file: string): string => {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}

/** Whether the contents of /etc/os-release describe Debian, Ubuntu or a derivative. */
export function isDebian(os_release: string): boolean {
  const ids = [...os_release.matchAll(/^ID(?:_LIKE)?=(.*)$/gm)].flatMap((match) =>
    match[1]!.replaceAll(/["']/g, '').split(/\s+/),
  )
  return ids.includes('debian') || ids.includes('ubuntu')
}

const installed = (program: string) =>
  [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin', '/sbin'].some((folder) =>
    existsSync(join(folder, program)),
  )

const hasSystemd = () => existsSync('/run/systemd/system')

async function run(command: string[], progress: Progress): Promise<void> {
  const [program = '', ...args] = command
  const child = spawn(program, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
  })
  let tail = ''
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => {
      tail = (tail + text).slice(-4000)
      progress.detail(text.trimEnd().split('\n').at(-1) ?? '')
    })
  const code = await new Promise<number>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (status) => resolve(status ?? 1))
  })
  if (code === 0) return
  const errors = tail.split('\n').filter((line) => /^(E:|W:|error|failed)/i.test(line))
  throw new Fault(
    'unavailable',
    `"${command.join(' ')}" failed: ${errors.join(' ').slice(0, 400) || `exit code ${code}`}`,
  )
}

async function install(progress: Progress): Promise<void> {
  progress.step('installing a Docker engine (docker.io, about 30 seconds)…')
  // Before the scripts of the package start the engine, so that live-restore applies from the first start.
  if (!existsSync(daemon_json)) {
    mkdirSync('/etc/docker', { recursive: true })
    writeFileSync(daemon_json, '{ "live-restore": true }\n')
  }
  const apt = ['apt-get', '-o', 'DPkg::Lock::Timeout=300']
  await run([...apt, 'update'], progress)
  await run([...apt, 'install', '-y', '--no-install-recommends', 'docker.io', 'iptables'], progress)
}

async function answers(engine: Engine): Promise<Version | undefined> {
  try {
    return await engine.ping(AbortSignal.timeout(3000))
  } catch {
    return undefined
  }
}

/** Waits until the engine answers. Returns undefined when the child exits or at the deadline. */
async function wait(engine: Engine, child: ChildProcess | undefined): Promise<Version | undefined> {
  const deadline = Date.now() + start_deadline_ms
  while (Date.now() < deadline) {
    const version = await answers(engine)
    if (version) return version
    if (child && child.exitCode !== null) return undefined
    await sleep(200)
  }
  return undefined
}

async function start(engine: Engine, logs: string, progress: Progress): Promise<Version> {
  progress.step('starting the Docker engine…')
  if (hasSystemd()) {
    await run(['systemctl', 'enable', '--now', 'docker'], progress)
    const version = await wait(engine, undefined)
    if (version) return version
    throw new Fault('unavailable', 'the Docker engine was started but does not respond', {
      hint: 'run "systemctl status docker"',
    })
  }
  const log = join(logs, 'dockerd.log')
  mkdirSync(logs, { recursive: true })
  // The engine refuses to start if the option is both in the file and a flag.
  const args = read(daemon_json).includes('live-restore') ? [] : ['--live-restore']
  // After a kill, the first start can fail because of stale pid files of containerd; the second succeeds.
  for (const attempt of [1, 2]) {
    const out = openSync(log, 'a')
    const child = spawn('dockerd', args, { detached: true, stdio: ['ignore', out, out] })
    child.once('error', (error) => progress.detail(messageOf(error)))
    child.unref()
    const version = await wait(engine, child)
    if (version) return version
    if (attempt === 1) progress.step('the Docker engine did not start, retrying…')
  }
  const last = read(log).trim().split('\n').at(-1) ?? ''
  throw new Fault('unavailable', `failed to start the Docker engine: ${last.slice(0, 300)}`, {
    hint: `see the log ${log}`,
  })
}

export async function ensureEngine(
  engine: Engine,
  where: { logs: string; docker_host: string | undefined },
  progress: Progress,
): Promise<Version> {
  let reason: string
  try {
    return await engine.ping(AbortSignal.timeout(10_000))
  } catch (error) {
    reason = messageOf(error)
  }
  if (where.docker_host)
    throw new Fault(
      'unavailable',
      `cannot connect to the Docker engine at DOCKER_HOST=${where.docker_host}: ${reason}`,
      { hint: 'start it, or unset DOCKER_HOST to use the local engine' },
    )
  const root = isRoot()
  if (!root || !isDebian(read('/etc/os-release')))
    throw new Fault('unavailable', `cannot connect to a Docker engine: ${reason}`, {
      hint: root
        ? 'install Docker and start it, or set DOCKER_HOST'
        : 'start Docker and check that your user is in the group docker, or set DOCKER_HOST',
    })
  // An engine is starting: wait for it instead of starting a second one.
  const pid = Number(read('/var/run/docker.pid'))
  if (pid > 0 && read(`/proc/${pid}/comm`).trim() === 'dockerd') {
    progress.step('waiting for the Docker engine…')
    const version = await wait(engine, undefined)
    if (version) return version
    throw new Fault('unavailable', `the Docker engine is running (process ${pid}) but does not respond`)
  }
  if (!installed('dockerd')) await install(progress)
  return (await answers(engine)) ?? start(engine, where.logs, progress)
}
