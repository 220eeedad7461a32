// Compares rows with the engine at start, every `reconcile_seconds` and whenever the engine reports that a container ended:
// starts containers that are wanted and missing, removes what exists and is not wanted, finishes interrupted deletes.
// Directories of projects are never deleted for lack of a row: they are moved aside. This sweep is the only recovery.
import { readdir, rm } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Fault, messageOf } from '../../fault.ts'
import { defaultWorkspace } from '../../ids.ts'
import type { KeyedQueue } from '../../lib/keyed-queue.ts'
import type { Log } from '../../log.ts'
import type { ContainerEvent, Runtime } from '../../runtime/runtime.ts'
import type { Store } from '../../store/open.ts'
import {
  allProjects,
  type ProjectWithContainer,
  projectById,
  saveContainer,
} from '../../store/rows/projects.ts'
import type { Projects } from '../project/projects.ts'
import { type Directories, tamperedFault } from '../workspace/directories.ts'
import type { Layout } from '../workspace/layout.ts'
import type { Containers } from './containers.ts'
import type { ContainerEnds } from './ends.ts'
import { orphansOf, type Seen } from './orphans.ts'
import type { Pause } from './pause.ts'
import { Abandoned } from './starts.ts'

/** A container that keeps ending is started this often; then it stays `failed` until an operator starts it. */
const mostFailures = 5
/** After running this long, its failures are reset. */
const steadyMs = 300_000
/** A start may clone for minutes: the sweep continues with other projects while it runs. */
const patienceMs = 10_000
const lookMs = 100

type Deps = {
  store: Store
  runtime: Runtime
  ends: ContainerEnds
  paused: Pick<Pause, 'observe'>
  /** Opens the project's socket, also if it was deleted. */
  listen: (project_id: string) => Promise<void>
  projects: Projects
  containers: Containers
  layout: Layout
  directories: Directories
  serial: KeyedQueue
  log: Log
  every_seconds: number
  /** Projects whose remote is not cloned yet, possibly because a clone was interrupted. */
  preparing: ReadonlySet<string>
  /** Its workspaces will not be prepared. */
  unprepared: (project_id: string, reason: string) => Promise<void>
  /** Its sessions will not get a container. */
  onGivenUp: (project_id: string, reason: string) => Promise<void>
  /** Sweeps of other managers. */
  also: (() => Promise<void>)[]
}

async function names(directory: string): Promise<string[]> {
  return await readdir(directory).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return []
    throw error
  })
}

export function createReconcile(deps: Deps) {
  const { store, runtime, projects, containers, ends, layout, directories, log } = deps
  const ended = new AbortController()
  let sweeping: Promise<void> | undefined

  async function attempt(
    what: string,
    project_id: string | undefined,
    work: () => Promise<unknown>,
  ): Promise<void> {
    try {
      await work()
    } catch (error) {
      if (!ended.signal.aborted)
        log.warn(`failed ${what}, retrying in the next sweep`, { project_id, error: messageOf(error) })
    }
  }

  async function restart(project: ProjectWithContainer, reason: string, signal: AbortSignal) {
    const failures = await ends.failuresOf(project.id)
    if (failures >= mostFailures) {
      const given_up = `${reason}; not restarted after ${failures} failed starts`
      await deps.onGivenUp(project.id, given_up)
      await deps.unprepared(project.id, given_up)
      return await saveContainer(store.db, project.id, { status: 'failed', reason: given_up })
    }
    await saveContainer(store.db, project.id, { status: 'failed', reason })
    log.info('restarting container', { project_id: project.id, reason })
    try {
      // Its supervisor reports how the sessions ended: it has their last events in its journal.
      await containers.bringUp(project.id, {}, signal)
    } catch (error) {
      if (error instanceof Abandoned || ended.signal.aborted) return
      // Also after an operator stopped it: a container that cannot be started is not retried for ever.
      await saveContainer(store.db, project.id, { failures: failures + 1 })
      // A container that never existed did not end.
      await deps.onGivenUp(project.id, project.container_id === null ? messageOf(error) : reason)
      throw error
    }
  }

  /** A retry would fail the same way until it is repaired. */
  async function markUnstartable(project: ProjectWithContainer, { message, hint }: Fault) {
    const reason = `${message}; ${hint}`
    if (project.container_status === 'failed' && project.container_reason === reason) return
    log.warn('failed to restart a container', { project_id: project.id, reason })
    await deps.onGivenUp(project.id, reason)
    await saveContainer(store.db, project.id, { status: 'failed', reason })
  }

  /** Runs in the project's queue, with the row as it is then: it may have changed since it was listed. */
  async function compare(project_id: string, signal: AbortSignal): Promise<void> {
    const project = await projectById(store.db, project_id)
    if (!project || project.deleting_at) return
    await directories.ensureProject(project_id)
    const [tampered] = await directories.tampered(project_id, [defaultWorkspace])
    const state = await runtime.inspect(project_id)
    const running = state?.status === 'running'
    const paused = state?.status === 'paused'
    await deps.paused.observe(project_id, paused)
    if (project.wanted === 'running' && paused) return
    if (project.wanted === 'running' && !running)
      return tampered
        ? await markUnstartable(project, tamperedFault(tampered))
        : await restart(project, ends.reasonOf(project, state), signal)
    if (running && project.wanted === 'running') await deps.listen(project_id)
    if (project.wanted === 'running' && deps.preparing.has(project_id))
      return void (await containers.bringUp(project_id, {}, signal))
    if (project.wanted === 'stopped' && (running || paused)) await runtime.stop(project_id, 10)
    const status = project.wanted === 'running' ? 'running' : state ? 'stopped' : 'absent'
    if (status !== project.container_status)
      await saveContainer(store.db, project_id, { status, reason: null })
    if (running && Date.now() - Date.parse(state.started_at ?? '') > steadyMs)
      if ((await ends.failuresOf(project_id)) > 0) await saveContainer(store.db, project_id, { failures: 0 })
  }

  /** Skips a project with an operation under way: the next sweep compares it. */
  async function reconcileProject(project_id: string): Promise<void> {
    if (deps.serial.busy(project_id)) return
    const work = attempt('to reconcile a project', project_id, () =>
      deps.serial(project_id, (signal) => compare(project_id, signal)),
    )
    // A clone may take as long as its remote takes.
    if (deps.preparing.has(project_id)) return
    await Promise.race([work, patience(project_id)])
  }

  /** A build takes minutes, and the sessions that wait for it are found by a later part of the sweep. */
  async function patience(project_id: string): Promise<void> {
    const until = performance.now() + patienceMs
    while (performance.now() < until && !containers.isBuilding(project_id) && !ended.signal.aborted)
      await sleep(lookMs, undefined, { signal: ended.signal, ref: false }).catch(() => undefined)
  }

  async function sweepOrphans(seen: Seen, known: Set<string>): Promise<void> {
    const orphans = orphansOf(seen, known, layout)
    for (const project_id of orphans.in_engine) {
      log.info('removing what belongs to no project from the engine', { project_id })
      await attempt('to remove what belongs to no project', project_id, () => runtime.remove(project_id))
    }
    for (const path of orphans.sockets) await rm(path, { recursive: true, force: true })
    for (const name of orphans.directories)
      await attempt('to move the directory of an unknown project aside', name, () =>
        directories.moveToLost(name),
      )
  }

  async function sweep(): Promise<void> {
    // Rows are read last: everything is created after its row, so what was listed before and has no row is an orphan.
    const [engine, directories, sockets] = await Promise.all([
      runtime.owned(),
      names(layout.projects),
      names(layout.sockets),
    ])
    const all = await allProjects(store.db)
    for (const project of all) {
      if (ended.signal.aborted) return
      if (!project.deleting_at) await reconcileProject(project.id)
      else if (!deps.serial.busy(project.id))
        await attempt('to delete a project', project.id, () => projects.remove(project.id))
    }
    await sweepOrphans({ engine, projects: directories, sockets }, new Set(all.map((project) => project.id)))
    if (all.some(({ wanted, network }) => wanted === 'running' && network !== 'none'))
      await attempt('to protect the host', undefined, () => runtime.protect())
    for (const work of deps.also) await attempt('to sweep', undefined, work)
  }

  function once(): Promise<void> {
    sweeping ??= sweep()
      .catch((error: unknown) => {
        if (!ended.signal.aborted)
          log.warn('failed to reconcile, retrying in the next sweep', { error: messageOf(error) })
      })
      .finally(() => {
        sweeping = undefined
      })
    return sweeping
  }

  async function watch(): Promise<void> {
    for await (const event of runtime.events(ended.signal))
      if (isStateChange(event)) void reconcileProject(event.project_id)
  }

  const isStateChange = ({ action }: ContainerEvent) =>
    ['die', 'destroy', 'pause', 'unpause'].includes(action)

  let timer: NodeJS.Timeout | undefined
  return {
    once,
    start() {
      timer = setInterval(() => void once(), deps.every_seconds * 1000)
      watch().catch((error: unknown) =>
        log.warn('failed to read events of the engine', { error: messageOf(error) }),
      )
    },
    async close() {
      ended.abort()
      clearInterval(timer)
      await sweeping
    },
  }
}
