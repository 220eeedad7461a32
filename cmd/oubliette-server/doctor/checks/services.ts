// What the server depends on: the engine with its images, the database, and the clocks of both.
import { readFileSync } from 'node:fs'
import { pendingMigrations, unknownMigrations } from '../../../../internal/store/backup/load.ts'
import { refuseNewEmbedded, refuseOther } from '../../daemon/database.ts'
import type { Facts } from '../facts.ts'
import { type Check, type Finding, ofFault, ok, problem, skipped, warning } from '../finding.ts'

function silentEngine(error: unknown, docker_host: string | undefined): Finding {
  if (!docker_host)
    return ofFault(error, {
      hint: 'this command starts an engine where it can',
      command: './oubliette up --detach',
    })
  const finding = ofFault(error)
  return {
    ...finding,
    message: finding.message.includes(docker_host)
      ? finding.message
      : `${finding.message} (DOCKER_HOST=${docker_host})`,
    hint: finding.hint ?? 'start it, or unset DOCKER_HOST to use the local engine',
  }
}

export const engine: Check = {
  name: 'engine',
  deadline_ms: 6_000,
  async run(facts) {
    const found = await facts.engine().catch((error: unknown) => ({ error }))
    if ('error' in found) return [silentEngine(found.error, facts.settings.docker_host)]
    const findings: Finding[] = []
    if (found.missing_limits.length > 0)
      findings.push(
        warning(`the engine does not enforce limits of ${found.missing_limits.join(', ')}`, {
          hint: 'enable the cgroup controllers in the kernel of the engine',
        }),
      )
    if (found.storage_driver === 'vfs')
      findings.push(
        warning('the storage driver vfs copies whole images for each container', {
          hint: 'set "storage-driver" to overlay2 in /etc/docker/daemon.json',
        }),
      )
    if (!found.live_restore)
      findings.push(
        warning('a restart of the engine ends all containers', {
          hint: 'set "live-restore": true in /etc/docker/daemon.json, and reload the engine',
        }),
      )
    const summary = `Docker ${found.version}, ${found.storage_driver}, cgroup v${found.cgroup_version}`
    return findings.length > 0 ? findings : [ok(summary)]
  },
}

export const images: Check = {
  name: 'images',
  deadline_ms: 8_000,
  async run(facts) {
    try {
      await facts.engine()
    } catch {
      return [skipped('the engine does not answer')]
    }
    const runtime = await facts.runtime()
    const database = await facts.database().catch(() => undefined)
    const used =
      database?.state === 'examined' ? database.examined.projects.map((it) => it.container_type) : []
    const needed = new Set(['base', facts.settings.config.default_container_type, ...used])
    const [known, built] = await Promise.all([runtime.images(), runtime.builtImages()])
    const unbuilt = known.filter((image) => needed.has(image.type) && !image.built)
    const findings = unbuilt.map(({ type }) => {
      const isStale = built.some((tag) => tag.startsWith(`oubliette/${type}:`))
      const state = isStale ? 'is of another release' : 'is not built'
      return warning(
        `the image of container type "${type}" ${state}; the next start of a container builds it`,
        {
          command: `./oubliette image-rebuild ${type}`,
        },
      )
    })
    for (const type of needed)
      if (
        !known.some((image) => image.type === type) &&
        type === facts.settings.config.default_container_type
      )
        findings.push(problem(`default_container_type "${type}" does not exist`, { hint: 'see images/' }))
    return findings.length > 0 ? findings : [ok(`built: ${[...needed].join(', ')}`)]
  },
}

/** A process that was stopped by a signal accepts connections and never answers. */
function stoppedAmong(pids: number[]): number[] {
  return pids.filter((pid) => {
    try {
      return /^\d+ \(.*\) T/s.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
    } catch {
      return false
    }
  })
}

async function unreachable(facts: Facts, error: unknown): Promise<Finding> {
  if (facts.settings.database_url) return ofFault(error)
  const pids = (await facts.cluster().catch(() => undefined))?.pids ?? []
  const stopped = stoppedAmong(pids)
  if (stopped.length > 0)
    return ofFault(error, {
      hint: 'its processes were stopped by a signal',
      command: `kill -CONT ${stopped.join(' ')}`,
    })
  return ofFault(error, {
    hint: 'a restart of the server restarts its database',
    command: './oubliette down; ./oubliette up --detach',
  })
}

export const database: Check = {
  name: 'database',
  deadline_ms: 6_000,
  async run(facts) {
    const { home, settings } = facts
    try {
      if (!settings.database_url) refuseNewEmbedded(home)
      const found = await facts.database()
      if (found.state === 'absent') return [ok('embedded; the first start creates it')]
      if (found.state === 'stopped') return [ok('embedded, stopped; it starts with the server')]
      const { examined, kind } = found
      refuseOther(home, examined.instance, kind === 'embedded')
      const newer = unknownMigrations(examined.migrations)
      if (newer.length > 0)
        return [
          problem(
            `the database at ${examined.place} belongs to a newer release: it has ${newer.join(', ')}`,
            {
              hint: 'start that release, or restore a backup from before the upgrade',
            },
          ),
        ]
      const { holder } = await facts.server()
      if (!holder && examined.holder)
        return [
          problem(`another server uses the database at ${examined.place}: ${examined.holder}`, {
            hint: 'stop that server; one database supports one server',
          }),
        ]
      const pending = examined.migrations.length > 0 ? pendingMigrations(examined.migrations).length : 0
      const state = pending > 0 ? `, the next start applies ${pending} migrations` : ''
      return [
        ok(`${kind} PostgreSQL ${examined.version}, instance ${examined.instance ?? 'none yet'}${state}`),
      ]
    } catch (error) {
      return [await unreachable(facts, error)]
    }
  },
}

const slightMs = 2_000
const graveMs = 60_000

export type Clock = { at_ms: number; asked_ms: number; answered_ms: number }

/** How far another clock is ahead, at least: the time that the answer took counts in its favour. */
export function skewMs({ at_ms, asked_ms, answered_ms }: Clock): number {
  if (at_ms < asked_ms) return at_ms - asked_ms
  return at_ms > answered_ms ? at_ms - answered_ms : 0
}

export function judgeClock(name: string, clock: Clock): Finding | undefined {
  const skew = skewMs(clock)
  if (Math.abs(skew) < slightMs) return undefined
  const message = `the clock of the ${name} is ${(Math.abs(skew) / 1000).toFixed(1)} s ${skew > 0 ? 'ahead of' : 'behind'} this machine`
  const more = {
    command: 'timedatectl set-ntp true',
    hint: 'on both machines: expiries and schedules depend on the time',
  }
  return Math.abs(skew) < graveMs ? warning(message, more) : problem(message, more)
}

export const clock: Check = {
  name: 'clock',
  deadline_ms: 7_000,
  async run(facts) {
    const [ofEngine, ofDatabase] = await Promise.all([
      facts
        .engine()
        .then((found) => found.clock)
        .catch(() => undefined),
      facts
        .database()
        .then((found) => (found.state === 'examined' ? found.examined.clock : undefined))
        .catch(() => undefined),
    ])
    const clocks = Object.entries({ engine: ofEngine, database: ofDatabase }).filter(
      (entry): entry is [string, Clock] => entry[1] !== undefined,
    )
    if (clocks.length === 0) return [skipped('neither engine nor database answers')]
    const findings = clocks.map(([name, clock]) => judgeClock(name, clock)).filter((one) => one !== undefined)
    return findings.length > 0 ? findings : [ok(`agrees with ${clocks.map(([name]) => name).join(' and ')}`)]
  },
}
