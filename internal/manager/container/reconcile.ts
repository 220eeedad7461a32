// Rows against engine. At start, every `reconcile_seconds` and whenever the engine reports a death: what is wanted
// and missing is made, what exists in the engine and is not wanted is removed, a delete that a crash cut short is
// finished. Directories of projects are never deleted for lack of a row: they are moved aside. The sweep is the
// recovery; there is no other.
import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
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
import type { Pause } from './pause.ts'

/** A container that keeps dying is started this often; after that it is left `failed` for a person to look at. */
const mostFailures = 5
/** One that has run this long is no longer held to have failed before. */
const steady_ms = 300_000
/** A start may clone for minutes: the sweep goes on to the other projects, and the start goes on by itself. */
const patience_ms = 10_000

type Deps = {
  store: Store
  runtime: Runtime
  ends: ContainerEnds
  paused: Pick<Pause, 'seen'>
  /** Its socket is there, also if somebody deleted it. */
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
  /** Nothing prepares its workspaces any more. */
  unprepared: (project_id: string, reason: string) => Promise<void>
  /** There will be no container for its sessions. */
  onGivenUp: (project_id: string, reason: string) => Promise<void>
  /** Whatever else has to be swept, by other managers. */
  also: (() => Promise<void>)[]
}

type Seen = { engine: Awaited<ReturnType<Runtime['owned']>>; projects: string[]; sockets: string[] }

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
        log.warn(`${what} failed, and will be tried again`, { project_id, error: messageOf(error) })
    }
  }

  async function bringBack(project: ProjectWithContainer, reason: string, signal: AbortSignal) {
    const failures = await ends.failuresOf(project.id)
    if (failures >= mostFailures) {
      const given_up = `${reason}; given up after ${failures} starts`
      await deps.onGivenUp(project.id, given_up)
      await deps.unprepared(project.id, given_up)
      return await saveContainer(store.db, project.id, { status: 'failed', reason: given_up })
    }
    await saveContainer(store.db, project.id, { status: 'failed', reason })
    log.info('container is brought back', { project_id: project.id, reason })
    try {
      // Its supervisor tells the sessions what became of them: it has their last words in its journal.
      await containers.bringUp(project.id, {}, signal)
    } catch (error) {
      // Also after a stop by hand: a container that cannot be started is not tried for ever.
      await saveContainer(store.db, project.id, { failures: failures + 1 })
      await deps.onGivenUp(project.id, reason)
      throw error
    }
  }

  /** Trying again changes nothing: somebody has to repair it first. */
  async function holdBack(project: ProjectWithContainer, { message, hint }: Fault) {
    const reason = `${message}; ${hint}`
    if (project.container_status === 'failed' && project.container_reason === reason) return
    log.warn('failed to bring a container back', { project_id: project.id, reason })
    await deps.onGivenUp(project.id, reason)
    await saveContainer(store.db, project.id, { status: 'failed', reason })
  }

  /** In the project's turn, and from its row as it is then: what was read earlier may have been changed since. */
  async function compare(project_id: string, signal: AbortSignal): Promise<void> {
    const project = await projectById(store.db, project_id)
    if (!project || project.deleting_at) return
    await directories.ensureProject(project_id)
    const [tampered] = await directories.tampered(project_id, [defaultWorkspace])
    const state = await runtime.inspect(project_id)
    const running = state?.status === 'running'
    const paused = state?.status === 'paused'
    await deps.paused.seen(project_id, paused)
    if (project.wanted === 'running' && paused) return
    if (project.wanted === 'running' && !running)
      return tampered
        ? await holdBack(project, tamperedFault(tampered))
        : await bringBack(project, ends.reasonOf(project, state), signal)
    if (running && project.wanted === 'running') await deps.listen(project_id)
    if (project.wanted === 'running' && deps.preparing.has(project_id))
      return void (await containers.bringUp(project_id, {}, signal))
    if (project.wanted === 'stopped' && (running || paused)) await runtime.stop(project_id, 10)
    const status = project.wanted === 'running' ? 'running' : state ? 'stopped' : 'absent'
    if (status !== project.container_status)
      await saveContainer(store.db, project_id, { status, reason: null })
    if (running && Date.now() - Date.parse(state.started_at ?? '') > steady_ms)
      if ((await ends.failuresOf(project_id)) > 0) await saveContainer(store.db, project_id, { failures: 0 })
  }

  /** Whoever has the turn now is changing things: there is nothing to compare before that is over. */
  async function settle(project_id: string): Promise<void> {
    if (deps.serial.busy(project_id)) return
    const work = attempt('reconciliation', project_id, () =>
      deps.serial(project_id, (signal) => compare(project_id, signal)),
    )
    // A clone takes as long as its remote likes.
    if (deps.preparing.has(project_id)) return
    // When we are closing, there is nothing more to wait for.
    const patience = sleep(patience_ms, undefined, { signal: ended.signal, ref: false }).catch(
      () => undefined,
    )
    await Promise.race([work, patience])
  }

  /** What carries our label, or lies in our directories, and belongs to no row. */
  async function sweepOrphans(seen: Seen, known: Set<string>): Promise<void> {
    for (const project_id of new Set(seen.engine.map((thing) => thing.project_id)))
      if (!known.has(project_id)) {
        log.info('orphan is removed from the engine', { project_id })
        await attempt('removal', project_id, () => runtime.remove(project_id))
      }
    const sockets = new Set([...known].map((id) => layout.socketDir(id)))
    for (const name of seen.sockets)
      if (!sockets.has(join(layout.sockets, name)))
        await rm(join(layout.sockets, name), { recursive: true, force: true })
    for (const name of seen.projects)
      if (!known.has(name) && !name.startsWith('.'))
        await attempt('moving an unknown project aside', name, () => directories.moveToLost(name))
  }

  async function sweep(): Promise<void> {
    // Rows are read last. Whatever is made has its row first, so what was there before and has no row is an orphan.
    const [engine, directories, sockets] = await Promise.all([
      runtime.owned(),
      names(layout.projects),
      names(layout.sockets),
    ])
    const all = await allProjects(store.db)
    for (const project of all) {
      if (ended.signal.aborted) return
      if (!project.deleting_at) await settle(project.id)
      else if (!deps.serial.busy(project.id))
        await attempt('delete', project.id, () => projects.remove(project.id))
    }
    await sweepOrphans({ engine, projects: directories, sockets }, new Set(all.map((project) => project.id)))
    if (all.some(({ wanted, network }) => wanted === 'running' && network !== 'none'))
      await attempt('protection of the host', undefined, () => runtime.protect())
    for (const work of deps.also) await attempt('sweep', undefined, work)
  }

  function once(): Promise<void> {
    sweeping ??= sweep()
      .catch((error: unknown) => {
        if (!ended.signal.aborted)
          log.warn('reconciliation failed, and will be tried again', { error: messageOf(error) })
      })
      .finally(() => {
        sweeping = undefined
      })
    return sweeping
  }

  async function watch(): Promise<void> {
    for await (const event of runtime.events(ended.signal)) if (isNews(event)) void settle(event.project_id)
  }

  const isNews = ({ action }: ContainerEvent) => ['die', 'destroy', 'pause', 'unpause'].includes(action)

  let timer: NodeJS.Timeout | undefined
  return {
    once,
    start() {
      timer = setInterval(() => void once(), deps.every_seconds * 1000)
      watch().catch((error: unknown) => log.warn('engine events ended', { error: messageOf(error) }))
    },
    async close() {
      ended.abort()
      clearInterval(timer)
      await sweeping
    },
  }
}
