// The container of a project: created when it is needed, hardened, compared with its spec. `wanted` in the row is the
// requested state; the engine has the actual one. Concurrent starts of one project share one start.
import { chmod, mkdir, writeFile } from 'node:fs/promises'
import type { Config } from '../../config/load.ts'
import { Fault, messageOf } from '../../fault.ts'
import { isProxied } from '../../git/remote.ts'
import { defaultWorkspace } from '../../ids.ts'
import type { KeyedQueue } from '../../lib/keyed-queue.ts'
import type { Log } from '../../log.ts'
import { percentOf } from '../../runtime/image/steps.ts'
import type { BuildProgress, ContainerSpec, ContainerState, Runtime } from '../../runtime/runtime.ts'
import type { Store } from '../../store/open.ts'
import { type ProjectWithContainer, saveContainer } from '../../store/rows/projects.ts'
import { recentWorkspaces } from '../../store/rows/workspaces.ts'
import { requireStartable } from '../disk/limit.ts'
import { effectiveLimits } from '../project/projects.ts'
import { requireProject } from '../project/require.ts'
import { type Directories, type Repaired, type Tampered, tamperedFault } from '../workspace/directories.ts'
import { containerPaths, type Layout } from '../workspace/layout.ts'
import type { ContainerEnds } from './ends.ts'
import { type Pause, pausedFault } from './pause.ts'
import { Abandoned, createStarts, type Progress, type SessionSteps, startingContainer } from './starts.ts'
import { groupsOf } from './user.ts'

/** The main process of every container, and the directory that is mounted for it. */
export type ClientInContainer = { command: string[]; directory: string | undefined; path: string }

export type ContainersDeps = {
  store: Store
  runtime: Runtime
  config: Config
  layout: Layout
  directories: Directories
  serial: KeyedQueue
  owner: { uid: number; gid: number }
  client: ClientInContainer
  log: Log
  /** Projects whose remote is not cloned yet. */
  preparing: ReadonlySet<string>
  /** Hears of the steps of every start. */
  sessionSteps: SessionSteps
  /** Runs after a container was started, before the start is answered. */
  prepare: (project: ProjectWithContainer, progress: Progress, signal: AbortSignal) => Promise<void>
  /** The start failed before `prepare` was done. */
  unprepared: (project_id: string, error: string) => Promise<void>
  /** Opens the project's socket, so that the main process can connect. */
  listen: (project_id: string) => Promise<void>
  /** The container was stopped on request: ends what ran in it. */
  onStop: (project_id: string) => Promise<void>
  ends: Pick<ContainerEnds, 'record'>
  paused: Pick<Pause, 'observe'>
  /** Throws while the disk of the server is nearly full. */
  requireFree: () => void
}

type StartOptions = {
  recreate?: boolean
  /** A caller requested the start itself: resets the count of failures. A start for a session or command does not. */
  reset_failures?: boolean
  progress?: Progress
  /**
   * Ends the wait of this caller. A start may be shared, so it goes on; only the build of an image is cancelled when nothing
   * else waits for it. Calls of clients pass none: a client that gives up and asks again would start the build anew each time.
   */
  signal?: AbortSignal
}

/** Workspaces other than the default one that are not directories do not prevent the start. */
export type Started = ContainerState & { tampered: Tampered[]; repaired: Repaired[] }

/** `abandoned`: all its callers have left. Later ones do not share it, and it does nothing if its turn has not come yet. */
type Start = { done: Promise<Started>; abandoned: boolean }

/** Workspaces that a start checks; others are checked when they are used. */
const mostWorkspaces = 1000

export function createContainers(deps: ContainersDeps) {
  const { store, runtime, config, layout, directories } = deps
  const starts = createStarts(deps.sessionSteps)
  const starting = new Map<string, Start>()

  async function imageOf(project: ProjectWithContainer, signal: AbortSignal): Promise<string> {
    const wanted = project.image ?? project.container_type
    const found = await runtime.resolveImage(wanted)
    if (found) return found
    if (project.image)
      throw new Fault('not_found', `the engine has no image "${project.image}"`, {
        hint: 'pull or build it, or set another image with project update',
      })
    const progress: BuildProgress = (report) =>
      starts.report(project.id, { step: report.step, percent: percentOf(report) })
    starts.report(project.id, { step: `building image ${wanted}`, percent: 0 })
    const { reference } = await starts.build(project.id, signal, (either) =>
      runtime.build(wanted, { progress, signal: either }),
    )
    return reference
  }

  function specOf(project: ProjectWithContainer, image: string): ContainerSpec {
    const limits = effectiveLimits(config, project)
    const mount = (source: string, target: string, read_only = false) => ({ source, target, read_only })
    const mounts = [
      mount(layout.workspaces(project.id), containerPaths.workspaces),
      mount(layout.droidHome(project.id), containerPaths.home),
      // Connecting needs no write access, and read-only, the container cannot replace the socket.
      mount(layout.socketDir(project.id), containerPaths.socket, true),
    ]
    if (deps.client.directory) mounts.push(mount(deps.client.directory, containerPaths.client, true))
    if (project.image !== null) mounts.push(mount(layout.groups(project.id), containerPaths.groups, true))
    return {
      project_id: project.id,
      image,
      command: deps.client.command,
      user: `${deps.owner.uid}:${deps.owner.gid}`,
      env: {
        HOME: containerPaths.home,
        LANG: 'C.UTF-8',
        PATH: deps.client.path,
        OUBLIETTE_PROJECT_ID: project.id,
        // For remotes behind the git proxy of the server: the supervisor configures git in the container.
        ...(project.remote_url && isProxied(project.remote_url)
          ? { OUBLIETTE_REMOTE_URL: project.remote_url }
          : {}),
      },
      mounts,
      working_dir: `${containerPaths.workspaces}/${defaultWorkspace}`,
      network: project.network,
      dns_servers: config.dns_servers,
      memory_mb: limits.memory_mb,
      cpus: limits.cpus,
      pids: limits.pids,
      file_mb: limits.disk_mb,
      read_only_root: project.image === null,
    }
  }

  /** Throws if the default workspace is not a directory: the main process starts in it. */
  async function inspectWorkspaces(project_id: string, ids: string[]): Promise<Tampered[]> {
    const tampered = await directories.tampered(project_id, ids)
    const first = tampered.find(({ workspace_id }) => workspace_id === defaultWorkspace)
    if (first) throw tamperedFault(first)
    for (const one of tampered) deps.log.warn('a workspace is not a directory', { project_id, ...one })
    return tampered
  }

  /** To be called while holding the project's queue; `signal` is that of the queue. */
  async function bringUp(project_id: string, options: StartOptions, signal: AbortSignal): Promise<Started> {
    const project = await requireProject(store.db, project_id)
    const ids = await recentWorkspaces(store.db, project_id, mostWorkspaces)
    await directories.ensureProject(project_id)
    // Before any row is written: a refusal changes nothing about a running container.
    const before = await runtime.inspect(project_id)
    if (!options.recreate && before?.status === 'paused') {
      await deps.paused.observe(project_id, true)
      throw pausedFault()
    }
    let tampered = options.recreate ? [] : await inspectWorkspaces(project_id, ids)
    await deps.ends.record(project, before)
    await saveContainer(store.db, project_id, {
      wanted: 'running',
      ...(options.reset_failures ? { failures: 0 } : {}),
    })
    starts.begin(project_id)
    try {
      const spec = specOf(project, await imageOf(project, signal))
      await mkdir(layout.socketDir(project_id), { recursive: true })
      await chmod(layout.socketDir(project_id), 0o755)
      if (project.image !== null) await writeFile(layout.groups(project_id), groupsOf(deps.owner))
      await deps.listen(project_id)
      const existing = await runtime.inspect(project_id)
      const stale = existing && existing.status !== 'running' && existing.spec_hash !== runtime.specHash(spec)
      if (options.recreate || existing?.status !== 'running')
        starts.report(project_id, { step: startingContainer })
      if (existing && (options.recreate || stale)) await runtime.remove(project_id)
      // Now no process runs in it that could tamper again.
      const repaired = options.recreate ? await directories.repair(project_id, ids) : []
      if (options.recreate) tampered = await inspectWorkspaces(project_id, ids)
      signal.throwIfAborted()
      const state = await runtime.start(spec)
      await saveContainer(store.db, project_id, {
        status: 'running',
        reason: null,
        container_id: state.id,
        spec_hash: state.spec_hash,
        memory_mb: state.memory_mb,
      })
      await deps.paused.observe(project_id, false)
      await deps.prepare(project, (step) => starts.report(project_id, step), signal)
      signal.throwIfAborted()
      return { ...state, tampered, repaired }
    } catch (error) {
      if (starts.isClosed()) throw error
      if (error instanceof Abandoned) {
        await saveContainer(store.db, project_id, {
          wanted: 'stopped',
          status: before ? 'stopped' : 'absent',
          reason: null,
        })
        throw error
      }
      await saveContainer(store.db, project_id, { status: 'failed', reason: messageOf(error) })
      // What is unavailable may be back soon: the reconciler tries again.
      if (!(error instanceof Fault && error.kind === 'unavailable'))
        await deps.unprepared(project_id, messageOf(error))
      throw error
    } finally {
      await starts.end(project_id)
    }
  }

  async function requireDisk(project_id: string): Promise<void> {
    const project = await requireProject(store.db, project_id)
    requireStartable(config, project)
    if (project.container_status !== 'running') deps.requireFree()
  }

  async function start(project_id: string, options: StartOptions = {}): Promise<Started> {
    if (options.reset_failures) await saveContainer(store.db, project_id, { failures: 0 })
    const shared = share(project_id, options)
    return await starts.wait(project_id, shared.done, {
      signal: options.signal,
      progress: options.progress,
      abandoned: () => {
        shared.abandoned = true
        if (starting.get(project_id) === shared) starting.delete(project_id)
      },
    })
  }

  /** Concurrent callers share one start. A `recreate` never shares a plain start. */
  function share(project_id: string, options: StartOptions): Start {
    const running = starting.get(project_id)
    if (running && !options.recreate) return running
    const done = deps.serial(project_id, async (signal) => {
      if (mine.abandoned) throw new Abandoned()
      await requireDisk(project_id)
      return await bringUp(project_id, options, signal)
    })
    const mine: Start = { done, abandoned: false }
    starting.set(project_id, mine)
    const over = () => {
      if (starting.get(project_id) === mine) starting.delete(project_id)
    }
    done.then(over, over)
    return mine
  }

  async function stop(project_id: string, grace_seconds: number): Promise<void> {
    // A clone or a build may take minutes: stop interrupts it.
    if (deps.preparing.has(project_id) || starts.isBuilding(project_id))
      deps.serial.interrupt(project_id, new Fault('conflict', 'the container is being stopped'))
    await deps.serial(project_id, async () => {
      const { container_status } = await requireProject(store.db, project_id)
      await saveContainer(store.db, project_id, { wanted: 'stopped' })
      await runtime.stop(project_id, grace_seconds)
      await deps.onStop(project_id)
      await saveContainer(store.db, project_id, {
        status: container_status === 'absent' ? 'absent' : 'stopped',
        reason: null,
        failures: 0,
      })
      await deps.paused.observe(project_id, false)
    })
  }

  async function* logs(project_id: string, options: Parameters<Runtime['logs']>[1]) {
    await requireProject(store.db, project_id)
    yield* runtime.logs(project_id, options)
  }

  async function rebuildImage(container_type: string, options: Parameters<Runtime['build']>[1]) {
    const types = (await runtime.images()).map(({ type }) => type)
    if (!types.includes(container_type))
      throw new Fault('invalid', `no container type "${container_type}"`, {
        hint: `types are ${types.join(', ')}`,
      })
    const started = performance.now()
    const { reference, size_bytes, created_at, rebuilt } = await runtime.build(container_type, options)
    const duration_ms = Math.round(performance.now() - started)
    return { container_type, reference, size_bytes, created_at, duration_ms, rebuilt }
  }

  const inspect = (project_id: string) => runtime.inspect(project_id)
  return {
    start,
    bringUp,
    isStarting: starts.isRunning,
    isBuilding: starts.isBuilding,
    close: starts.close,
    stop,
    specOf,
    logs,
    rebuildImage,
    inspect,
  }
}
export type Containers = ReturnType<typeof createContainers>
