// The program, its config, the server of the home and its address.
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { nearest } from '../../../../internal/lib/nearest.ts'
import { misdirected } from '../../daemon/daemon.ts'
import { assertFree } from '../../daemon/up.ts'
import { type Check, type Finding, ofFault, ok, problem, skipped, warning } from '../finding.ts'

const oldestNode = 24

export const node: Check = {
  name: 'node',
  deadline_ms: 2_000,
  async run() {
    const { node: version } = process.versions
    if (Number(version.split('.')[0]) >= oldestNode) return [ok(`Node ${version}`)]
    return [
      problem(`Node ${version} is too old; version ${oldestNode} or newer is required`, {
        hint: 'run this command as "./oubliette doctor": the script provides a suitable Node',
      }),
    ]
  },
}

/** Variables that the program reads. A misspelt one has no effect, which is hard to notice. */
const variables = [
  'OUBLIETTE_HOME',
  'OUBLIETTE_ADDRESS',
  'OUBLIETTE_ADMIN_TOKEN',
  'OUBLIETTE_TOKEN',
  'OUBLIETTE_URL',
]

function misspelt(env: NodeJS.ProcessEnv): Finding[] {
  return Object.keys(env)
    .filter(
      (name) =>
        /^OUBL?I?ET/.test(name) &&
        !variables.includes(name) &&
        !/^OUBLIETTE_(TEST|SERVER|POSTGRES)_/.test(name),
    )
    .map((name) => {
      const [near] = nearest(name, variables)
      return warning(`the environment variable ${name} has no effect`, {
        hint: near ? `did you mean ${near}?` : `known variables: ${variables.join(', ')}`,
      })
    })
}

export const config: Check = {
  name: 'config',
  deadline_ms: 2_000,
  async run({ env, settings, refused }) {
    const found = [
      ...[...refused, ...settings.problems].map((fault) => ofFault(fault)),
      ...settings.warnings.map((text) => warning(text, { hint: 'set it in the environment of the server' })),
      ...misspelt(env),
    ]
    const given = Object.values(settings.sources).filter((source) => source === 'file').length
    return found.length > 0 ? found : [ok(`${given} of its keys are set in oubliette.jsonc`)]
  },
}

export const server: Check = {
  name: 'server',
  deadline_ms: 7_000,
  async run(facts) {
    const { holder, state, is_ours } = await facts.server()
    if (!holder) return [ok('not running; start it with "./oubliette up --detach"')]
    if (!state || !is_ours)
      return [
        problem(
          `process ${holder.pid} holds the home, but does not answer at ${holder.address ?? 'its address'}`,
          {
            command: './oubliette logs',
          },
        ),
      ]
    const missing = (state.body.missing as string[] | undefined) ?? []
    if (missing.length > 0)
      return [
        problem(`process ${holder.pid} is not ready: ${missing.join(', ')}`, {
          hint: 'see "Runbook" in docs/operations.md for each of these',
        }),
      ]
    const degraded = (state.body.degraded as string[] | undefined) ?? []
    if (degraded.length > 0)
      return [warning(`ready (process ${holder.pid}), but degraded: ${degraded.join(', ')}`)]
    return [ok(`ready (process ${holder.pid})`)]
  },
}

const hexPort = (port: number) => port.toString(16).toUpperCase().padStart(4, '0')

/** The program that listens on a port of this machine, from /proc; undefined if it belongs to another user. */
function listenerOn(port: number): string | undefined {
  const inodes = new Set<string>()
  for (const table of ['/proc/net/tcp', '/proc/net/tcp6'])
    try {
      for (const line of readFileSync(table, 'utf8').split('\n').slice(1)) {
        const fields = line.trim().split(/\s+/)
        if (fields[3] === '0A' && fields[1]?.endsWith(`:${hexPort(port)}`))
          inodes.add(`socket:[${fields[9]}]`)
      }
    } catch {
      // Not Linux, or no IPv6.
    }
  if (inodes.size === 0) return undefined
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name)))
    try {
      if (readdirSync(`/proc/${pid}/fd`).some((fd) => inodes.has(linkOf(`/proc/${pid}/fd/${fd}`))))
        return `process ${pid} (${readFileSync(`/proc/${pid}/comm`, 'utf8').trim()})`
    } catch {
      // It has ended, or belongs to another user.
    }
  return undefined
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path)
  } catch {
    return ''
  }
}

export const address: Check = {
  name: 'address',
  deadline_ms: 7_000,
  async run(facts) {
    const { settings } = facts
    const { address } = settings.config
    const found = await facts.server()
    if (found.is_ours) return [ok(`${address}, used by the server of this home`)]
    const other = misdirected(settings, found)
    if (other) return [ofFault(other)]
    if (found.holder) return [skipped('the server of this home does not answer')]
    try {
      await assertFree(settings, facts.server)
      return [ok(`${address} is free`)]
    } catch (error) {
      const holder = listenerOn(Number(address.slice(address.lastIndexOf(':') + 1)))
      const finding = ofFault(error)
      return [{ ...finding, message: holder ? `${finding.message}: ${holder}` : finding.message }]
    }
  },
}
