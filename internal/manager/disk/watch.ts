// Measures the disk use of projects and stops those that exceed their limit. The free space of the disk is read every second,
// which is cheap; a project is measured, one at a time, when enough was written to the disk since its last measurement that it
// may exceed its limit, when that was long ago, or while it is over the limit. State is in the rows and survives a crash. File
// system quotas are not used; no single file grows beyond the limit (`RLIMIT_FSIZE`, see `runtime/docker/container/options.ts`).
import { setTimeout as sleep } from 'node:timers/promises'
import type { Config } from '../../config/load.ts'
import { messageOf } from '../../fault.ts'
import { measureTree } from '../../files/measure.ts'
import type { Log } from '../../log.ts'
import type { Runtime } from '../../runtime/runtime.ts'
import type { Store } from '../../store/open.ts'
import {
  type ProjectWithContainer,
  projectById,
  projectsOnDisk,
  saveContainer,
} from '../../store/rows/projects.ts'
import type { Layout } from '../workspace/layout.ts'
import type { FreeSpace, Written } from './free-space.ts'
import {
  averageEntryBytes,
  type DiskLimit,
  diskLimit,
  mebibyte,
  nextState,
  overReason,
  usedBytes,
} from './limit.ts'

const lookMs = 1_000
/** Shortest interval between measurements of a project, as a multiple of how long one takes. */
const intervalFactor = 20
/** Pause after each measurement, as a multiple of how long it took: leaves time to the event loop. */
const pauseFactor = 2

type Deps = {
  store: Store
  runtime: Runtime
  config: Config
  layout: Layout
  space: FreeSpace
  log: Log
  /** Fails the sessions of a project and stops its container, also during a start. */
  stop: (project_id: string, reason: string) => Promise<void>
}

type Known = { at: number; took_ms: number; used: number; written: Written }

export function createDiskWatch(deps: Deps) {
  const { store, runtime, config, layout, log, space } = deps
  const { written } = space
  const ended = new AbortController()
  const known = new Map<string, Known>()
  /** Projects whose files the server itself wrote or removed. */
  const touched = new Set<string>()
  const measuring = new Map<string, Promise<void>>()
  const stopping = new Map<string, Promise<void>>()
  let running: Promise<void> | undefined

  function isDue(project: ProjectWithContainer): boolean {
    const last = known.get(project.id)
    if (!last || touched.has(project.id) || project.disk_state === 'stopping') return true
    const age = Date.now() - last.at
    const { limit } = diskLimit(config, project)
    if (project.disk_state === 'over')
      return last.used <= limit || (project.wanted === 'running' && age > pauseFactor * last.took_ms)
    const room = Math.max(0, limit - last.used) / 2
    const grown = Math.max(
      written.bytes - last.written.bytes,
      (written.entries - last.written.entries) * averageEntryBytes,
    )
    return grown > room || age > Math.max(config.reconcile_seconds * 1000, intervalFactor * last.took_ms)
  }

  /** Of the directories that a container writes, and of its writable layer if it has one. */
  async function bytesOf(project: ProjectWithContainer, limit: DiskLimit): Promise<number> {
    const options = { signal: ended.signal, stop_at_bytes: limit.ceiling + mebibyte }
    const trees = []
    for (const path of [layout.workspaces(project.id), layout.droidHome(project.id)])
      trees.push(await measureTree(path, options))
    const layer = project.image === null ? 0 : await runtime.writableBytes(project.id)
    return usedBytes(trees, layer, limit)
  }

  async function measure(project_id: string): Promise<void> {
    const began = performance.now()
    const at_start = { ...written }
    touched.delete(project_id)
    const before = await projectById(store.db, project_id)
    if (!before || before.deleting_at) return void known.delete(project_id)
    const limit = diskLimit(config, before)
    const used = await bytesOf(before, limit)
    if (ended.signal.aborted) return
    const took_ms = performance.now() - began
    known.set(project_id, { at: Date.now(), took_ms, used, written: at_start })
    const state = nextState(before.disk_state, before.wanted === 'running', used, limit)
    await saveContainer(store.db, project_id, {
      disk_used_bytes: used,
      disk_measured_at: new Date().toISOString(),
      disk_state: state,
    })
    if (state === 'stopping') enforce(project_id, used, limit)
  }

  /** In the background: other projects are measured meanwhile. If it fails, the row stays `stopping` and it is repeated. */
  function enforce(project_id: string, used: number, limit: DiskLimit): void {
    if (stopping.has(project_id)) return
    const reason = `the project ${overReason(used, limit)}`
    log.warn('stopping a project that exceeds its disk limit', { project_id, reason })
    const work = deps
      .stop(project_id, reason)
      .then(() => saveContainer(store.db, project_id, { disk_state: 'over', reason }))
      .catch((error: unknown) =>
        log.warn('failed to stop a project that exceeds its disk limit', {
          project_id,
          reason: messageOf(error),
        }),
      )
      .finally(() => stopping.delete(project_id))
    stopping.set(project_id, work)
  }

  /** Concurrent calls share one measurement. */
  function measureOnce(project_id: string): Promise<void> {
    const running = measuring.get(project_id)
    if (running) return running
    const mine = measure(project_id).finally(() => measuring.delete(project_id))
    measuring.set(project_id, mine)
    return mine
  }

  async function round(): Promise<void> {
    await space.sample()
    const projects = await projectsOnDisk(store.db, [...touched])
    const ids = new Set(projects.map(({ id }) => id))
    for (const id of known.keys()) if (!ids.has(id)) known.delete(id)
    const due = projects.filter(isDue).sort((a, b) => (known.get(a.id)?.at ?? 0) - (known.get(b.id)?.at ?? 0))
    for (const { id } of due) {
      if (ended.signal.aborted) return
      const began = performance.now()
      await measureOnce(id).catch((error: unknown) =>
        log.warn('failed to measure the disk use of a project', { project_id: id, reason: messageOf(error) }),
      )
      await sleep(pauseFactor * (performance.now() - began), undefined, { signal: ended.signal })
      await space.sample()
    }
  }

  async function watch(): Promise<void> {
    while (!ended.signal.aborted) {
      try {
        await round()
        await sleep(lookMs, undefined, { signal: ended.signal })
      } catch (error) {
        if (ended.signal.aborted) return
        log.warn('failed to measure disk use, retrying', { reason: messageOf(error) })
        await sleep(lookMs)
      }
    }
  }

  return {
    start() {
      running ??= watch()
    },
    /** The server itself wrote or removed files of this project. */
    touched: (project_id: string): void => void touched.add(project_id),
    measure: measureOnce,
    requireFree: space.requireFree,
    freeMb: space.freeMb,
    refused: space.refused,
    async close() {
      ended.abort()
      await running
      await Promise.allSettled([...measuring.values(), ...stopping.values()])
    },
  }
}
