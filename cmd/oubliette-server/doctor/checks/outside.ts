// Left-overs of this instance, keys of model providers, and upstream MCP servers.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { messageOf } from '../../../../internal/fault.ts'
import { measureTree } from '../../../../internal/files/measure.ts'
import { orphansOf } from '../../../../internal/manager/container/orphans.ts'
import { layoutOf } from '../../../../internal/manager/workspace/layout.ts'
import { checkKey } from '../../../../internal/models/check-key.ts'
import { isProvider } from '../../../../internal/models/providers/providers.ts'
import { callTool, endpoint } from '../../client/call.ts'
import { baseUrl } from '../../daemon/daemon.ts'
import type { Facts } from '../facts.ts'
import { type Check, type Finding, ok, plural, problem, quoted, skipped, warning } from '../finding.ts'

const mebibyte = 1024 * 1024
const keyMs = 5_000
const measureMs = 4_000

async function lost(home: string, signal: AbortSignal): Promise<Finding[]> {
  const limited = AbortSignal.any([signal, AbortSignal.timeout(measureMs)])
  const findings: Finding[] = []
  for (const path of [join(home, 'lost'), join(home, 'projects', '.lost')]) {
    if (!existsSync(path)) continue
    const { bytes, complete } = await measureTree(path, { signal: limited })
    const size = plural(Math.ceil(bytes / mebibyte), 'MiB', 'MiB')
    findings.push(
      warning(`${path} holds directories that were moved aside (${complete ? '' : 'more than '}${size})`, {
        hint: 'they are user data: look at them, and delete what is not needed',
        command: `ls -l ${quoted(path)}`,
      }),
    )
  }
  return findings
}

/** The processes of the embedded database of a server that was killed. */
async function runningDatabase(facts: Facts): Promise<Finding[]> {
  const { holder } = await facts.server()
  const pids = (await facts.cluster())?.pids ?? []
  if (holder || pids.length === 0 || facts.settings.database_url) return []
  return [
    warning(`the embedded PostgreSQL runs without a server (process ${Math.min(...pids)})`, {
      hint: 'the next server uses it; this command stops it',
      command: './oubliette down',
    }),
  ]
}

async function orphans(facts: Facts): Promise<Finding[]> {
  if (facts.instance === undefined) return []
  const seen = await facts.seen().catch(() => undefined)
  if (!seen) return [skipped('the engine does not answer')]
  const { holder } = await facts.server()
  const findings: Finding[] = []
  if (!holder && seen.processes.length > 0)
    findings.push(
      warning(`${plural(seen.processes.length, 'container')} of upstream servers without a server`, {
        command: `docker rm --force ${seen.processes.join(' ')}`,
        async fix() {
          const removed = await (await facts.runtime()).sweepProcesses()
          return `removed ${plural(removed, 'container')} of upstream servers`
        },
      }),
    )
  // Read after the engine was listed: what exists by then and has no row is left over.
  const database = await facts.databaseNow().catch(() => undefined)
  if (database?.state !== 'examined')
    return seen.engine.length === 0 ? findings : [...findings, skipped('the rows of projects cannot be read')]
  if (database.examined.instance !== facts.instance)
    return [...findings, skipped('the database is of another instance')]
  const known = new Set(database.examined.projects.map(({ id }) => id))
  const found = orphansOf(seen, known, layoutOf(facts.home))
  for (const project_id of found.in_engine) {
    const kinds = seen.engine.filter((one) => one.project_id === project_id).map(({ kind }) => kind)
    findings.push(
      warning(`${kinds.join(', ')} of project ${project_id}, which does not exist`, {
        command: './oubliette doctor --fix',
        async fix() {
          await (await facts.runtime()).remove(project_id)
          return `removed what the engine has of project ${project_id}`
        },
      }),
    )
  }
  for (const name of found.directories)
    findings.push(
      warning(`the directory ${name} in projects/ belongs to no project`, {
        hint: 'the server moves it to lost/; nothing is deleted',
      }),
    )
  return findings
}

export const leftovers: Check = {
  name: 'left-overs',
  deadline_ms: 10_000,
  async run(facts, signal) {
    const findings = (
      await Promise.all([orphans(facts), runningDatabase(facts), lost(facts.home, signal)])
    ).flat()
    return findings.length > 0 ? findings : [ok('none')]
  },
}

export const providers: Check = {
  name: 'providers',
  deadline_ms: keyMs + 2_000,
  async run({ settings, offline }) {
    const usable = [...settings.credentials].filter(
      ([, it]) => isProvider(it.provider) && it.unset === undefined,
    )
    if (usable.length === 0) return [ok('no model provider has a key')]
    if (offline) return [skipped('--offline')]
    return await Promise.all(
      usable.map(async ([name, credential]) => {
        if (!isProvider(credential.provider)) return skipped(name)
        const { outcome, detail } = await checkKey(credential.provider, credential, keyMs)
        const which = `credential "${name}" (${credential.provider})`
        if (outcome === 'accepted') return ok(`${which} is accepted`)
        if (outcome === 'unchecked') return skipped(`${which}: ${detail}`)
        if (outcome === 'rejected')
          return problem(`the provider rejects ${which} (${detail})`, {
            hint: 'replace the key in oubliette.jsonc or in the environment of the server, and restart it',
          })
        if (outcome === 'unreachable')
          return warning(`the provider of ${which} cannot be reached: ${detail}`, {
            hint: 'check base_url, the network and the proxy; --offline skips this check',
          })
        return warning(`the provider of ${which} answers ${detail}`, { hint: 'check base_url' })
      }),
    )
  },
}

type Upstream = {
  name: string
  project_id: string | null
  state: string
  credentials: string
  reason: string | null
}

export const upstreams: Check = {
  name: 'upstreams',
  deadline_ms: 8_000,
  async run(facts, signal) {
    const { is_ours, state } = await facts.server()
    if (!is_ours || !state?.up) return [skipped('the server does not run')]
    const where = endpoint(facts.settings, baseUrl(facts.settings))
    const listed = await callTool(where, 'mcp_server', { action: 'list', limit: 100 }, { signal }).catch(
      messageOf,
    )
    if (typeof listed === 'string')
      return [warning(`the server does not list its upstream servers: ${listed}`)]
    const servers = listed.servers as Upstream[]
    const findings = servers.flatMap(({ name, project_id, state, credentials, reason }) => {
      const words = `${quoted(name)}${project_id ? ` --project-id ${project_id}` : ''}`
      if (credentials === 'needs_reauth' || credentials === 'revoked')
        return [
          warning(`${name}: its authorization has ended`, {
            command: `./oubliette mcp-server auth ${words}`,
          }),
        ]
      if (state !== 'error' && state !== 'degraded') return []
      const message = `${name} is ${state === 'error' ? 'in error' : state}${reason ? `: ${reason}` : ''}`
      return [warning(message, { command: `./oubliette mcp-server restart ${words}` })]
    })
    return findings.length > 0 ? findings : [ok(plural(servers.length, 'upstream server'))]
  },
}
