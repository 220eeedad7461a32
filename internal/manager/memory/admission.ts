// Which sessions may run a droid at the same time: the expected memory of the droids must fit into the container, or the kernel
// kills some of them. A session that does not fit is `queued`, in order; idle agents that can resume are hibernated for it, the
// longest idle first. All decisions read rows in transactions that the lock of the event log serializes.
import type { Config } from '../../config/load.ts'
import { Fault, messageOf } from '../../fault.ts'
import type { Log } from '../../log.ts'
import type { Db, Store } from '../../store/open.ts'
import { type ProjectWithContainer, projectById } from '../../store/rows/projects.ts'
import { insertCommand } from '../../store/rows/session/commands.ts'
import { type MemoryHolder, memoryUse, projectsWithQueue } from '../../store/rows/session/memory.ts'
import { cloningRepository, startingContainer } from '../container/starts.ts'
import type { Committed } from '../events/log-writer.ts'
import { effectiveLimits } from '../project/projects.ts'
import { type SessionChanging, status } from '../session/change.ts'
import type { RequestDispatch } from '../session/dispatch.ts'
import { expectedMb, heldMb, supervisorMb } from './expected.ts'
import type { MeasuredMemory } from './measured.ts'

/** The status of a session whose droid is to be started. */
export type Place =
  | { status: 'starting' }
  | { status: 'preparing'; step: string }
  | { status: 'queued'; queue_position: number; reason: string }

const waits = (need: number, free: number, is_outdated: boolean) =>
  `waits for memory: needs ${need} MiB, the container has ${Math.max(0, free)} MiB left${
    is_outdated ? '; container start with recreate applies the current limit of the project' : ''
  }`

export type AdmissionDeps = {
  store: Store
  config: Config
  log: Log
  measured: MeasuredMemory
  change: SessionChanging
  requestDispatch: RequestDispatch
  /** Projects whose remote is not cloned yet. */
  preparing: ReadonlySet<string>
}

export function createAdmission(deps: AdmissionDeps) {
  const { store, config, log, measured, change, requestDispatch } = deps
  /** Projects that may have queued sessions: a hint that saves queries, refreshed by each sweep. */
  const waiting = new Set<string>()
  const admitting = new Map<string, Promise<void>>()
  const again = new Set<string>()

  const held = (holder: MemoryHolder): number =>
    heldMb(config, holder, measured.of(holder.project_id, holder.id))

  async function memoryOf(trx: Db, project: ProjectWithContainer) {
    const { holders, queued } = await memoryUse(trx, project.id)
    const limit = effectiveLimits(config, project).memory_mb
    const running = project.container_status === 'running' || project.container_status === 'paused'
    const actual = running ? Math.min(limit, project.container_memory_mb ?? limit) : limit
    const free = actual - supervisorMb - holders.reduce((sum, it) => sum + held(it), 0)
    return { holders, queued, limit, actual, free }
  }

  /** Hibernates idle sessions, but none if that would not free enough. */
  async function hibernateIdle(trx: Db, project_id: string, holders: MemoryHolder[], missing: number) {
    const freeing = holders.filter((it) => it.hibernating).reduce((sum, it) => sum + held(it), 0)
    const idle = holders
      .filter((it) => it.idle_since !== null)
      .sort((a, b) => a.idle_since!.localeCompare(b.idle_since!))
    let left = missing - freeing
    const chosen: MemoryHolder[] = []
    for (const holder of idle) {
      if (left <= 0) break
      chosen.push(holder)
      left -= held(holder)
    }
    if (left > 0) return
    for (const { id } of chosen)
      await insertCommand(trx, { session_id: id, project_id, kind: 'hibernate', payload: {} })
  }

  /** For a session that fits. A paused container is not started: what is in it waits until it is unpaused. */
  function admitted({ id, container_status }: ProjectWithContainer): Exclude<Place, { status: 'queued' }> {
    if (deps.preparing.has(id)) return { status: 'preparing', step: cloningRepository }
    if (container_status === 'running' || container_status === 'paused') return { status: 'starting' }
    return { status: 'preparing', step: startingContainer }
  }

  /** In the transaction that starts the session. Throws `exhausted` if it can never fit into the container. */
  async function place(trx: Db, project: ProjectWithContainer, droid: string): Promise<Place> {
    const need = expectedMb(config, droid)
    const { holders, queued, limit, actual, free } = await memoryOf(trx, project)
    if (supervisorMb + need > limit)
      throw new Fault(
        'exhausted',
        `a session of droid "${droid}" needs ${need} MiB and the supervisor ${supervisorMb} MiB, the container has ${limit} MiB`,
        { hint: `raise limits.memory_mb of the project, or lower droids.${droid}.memory_mb in the config` },
      )
    if (queued.length === 0 && need <= free) return admitted(project)
    waiting.add(project.id)
    if (queued.length === 0) await hibernateIdle(trx, project.id, holders, need - free)
    return { status: 'queued', queue_position: queued.length + 1, reason: waits(need, free, actual < limit) }
  }

  /** Returns whether the queue advanced. */
  async function admitFirst(project_id: string): Promise<boolean> {
    const [first] = (await memoryUse(store.db, project_id)).queued
    if (!first) {
      waiting.delete(project_id)
      return false
    }
    return await change(first.id, async (trx, row, write) => {
      const project = await projectById(trx, project_id)
      if (!project) return false
      if (row.status !== 'queued') return true
      const need = expectedMb(config, row.droid)
      const { holders, actual, free } = await memoryOf(trx, project)
      // If the limit was lowered below what it needs, it may start when it is alone in the container.
      if (need > free && !(holders.length === 0 && supervisorMb + need > actual)) {
        await hibernateIdle(trx, project_id, holders, need - free)
        return false
      }
      const { status: name, ...more } = admitted(project)
      await write([status(name, more)], { queued_at: null })
      return true
    })
  }

  async function admitAll(project_id: string): Promise<void> {
    while (await admitFirst(project_id));
    requestDispatch(project_id)
  }

  /** One at a time per project; a call meanwhile runs it once more. */
  function admit(project_id: string): void {
    if (admitting.has(project_id)) return void again.add(project_id)
    const mine = admitAll(project_id)
      .catch((error: unknown) =>
        log.warn('failed to admit queued sessions', { project_id, reason: messageOf(error) }),
      )
      .finally(() => {
        admitting.delete(project_id)
        if (again.delete(project_id)) admit(project_id)
      })
    admitting.set(project_id, mine)
  }

  return {
    place,
    admit,
    onCommit({ events }: Committed): void {
      if (waiting.size === 0) return
      const moved = new Set(events.filter(({ type }) => type === 'status').map((event) => event.project_id))
      for (const project_id of moved) if (waiting.has(project_id)) admit(project_id)
    },
    /** After a crash, this is the recovery. */
    async sweep(): Promise<void> {
      for (const project_id of await projectsWithQueue(store.db)) {
        waiting.add(project_id)
        admit(project_id)
      }
    },
    close: async () => void (await Promise.allSettled(admitting.values())),
  }
}
export type Admission = ReturnType<typeof createAdmission>
