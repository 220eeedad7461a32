// The one container of a project: made when wanted, hardened, compared with its spec. `wanted` in the row is what
// somebody asked for; the engine is asked what is. Concurrent starts of one project share one start.
import { chmod, mkdir } from 'node:fs/promises'
import type { Config } from '../config.ts'
import { Fault, messageOf } from '../fault.ts'
import { defaultWorkspace } from '../ids.ts'
import type { Log } from '../log.ts'
import type { ContainerSpec, ContainerState, ExecRequest, ExecResult, Runtime } from '../runtime/runtime.ts'
import type { Store } from '../store/open.ts'
import { type ProjectWithContainer, saveContainer } from '../store/projects.ts'
import { requireStartable } from './disk/limit.ts'
import { containerPaths, type Layout } from './layout.ts'
import { effectiveLimits, type Projects } from './projects.ts'
import type { Serial } from './serial.ts'

export type Progress = (message: string) => void

/** What every container runs as its main process, and what is mounted for it. */
export type ClientInContainer = { command: string[]; directory: string | undefined; path: string }

export type ContainersDeps = {
  store: Store
  runtime: Runtime
  config: Config
  layout: Layout
  serial: Serial
  projects: Projects
  owner: { uid: number; gid: number }
  client: ClientInContainer
  log: Log
  /** Runs after a container was started, before the start is answered. */
  prepare: (project: ProjectWithContainer, progress: Progress, signal: AbortSignal) => Promise<void>
  /** Makes the project's socket in its directory, so that the main process finds it. */
  listen: (project_id: string) => Promise<void>
  /** It was stopped on purpose: what lived in it is told so. */
  onStop: (project_id: string) => Promise<void>
  /** Throws while the disk of the server is nearly full. */
  requireFree: () => void
  /** The quick way into a container, when its supervisor is connected. */
  supervisorExec: (project_id: string, request: ExecRequest) => Promise<ExecResult> | undefined
}

// No caller's signal: a start may be shared, and one who goes away does not end it for the others.
type StartOptions = { recreate?: boolean; progress?: Progress }

export function createContainers(deps: ContainersDeps) {
  const { store, runtime, config, layout, projects } = deps
  const starting = new Map<string, Promise<ContainerState>>()

  async function imageOf(
    project: ProjectWithContainer,
    { progress }: StartOptions,
    signal: AbortSignal,
  ): Promise<string> {
    const wanted = project.image ?? project.container_type
    const found = await runtime.resolveImage(wanted)
    if (found) return found
    if (project.image)
      throw new Fault('not_found', `the engine has no image "${project.image}"`, {
        hint: 'pull or build it, or name another with project update',
      })
    progress?.(`building the image of container type ${wanted}`)
    const { reference } = await runtime.build(wanted, { progress, signal })
    return reference
  }

  function specOf(project: ProjectWithContainer, image: string): ContainerSpec {
    const limits = effectiveLimits(config, project)
    const mount = (source: string, target: string, read_only = false) => ({ source, target, read_only })
    const mounts = [
      mount(layout.workspaces(project.id), containerPaths.workspaces),
      mount(layout.droidHome(project.id), containerPaths.home),
      // Connecting needs no write access, and nobody inside can replace the socket.
      mount(layout.socketDir(project.id), containerPaths.socket, true),
    ]
    if (deps.client.directory) mounts.push(mount(deps.client.directory, containerPaths.client, true))
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
      },
      mounts,
      working_dir: `${containerPaths.workspaces}/${defaultWorkspace}`,
      network: project.network,
      memory_mb: limits.memory_mb,
      cpus: limits.cpus,
      pids: limits.pids,
      file_mb: limits.disk_mb,
      read_only_root: project.image === null,
    }
  }

  /** For whoever has the project's turn; `signal` is the turn's. */
  async function bringUp(
    project_id: string,
    options: StartOptions,
    signal: AbortSignal,
  ): Promise<ContainerState> {
    const project = await projects.require(project_id)
    await saveContainer(store.db, project_id, { wanted: 'running' })
    try {
      const spec = specOf(project, await imageOf(project, options, signal))
      await projects.makeDirectories(project_id)
      await mkdir(layout.socketDir(project_id), { recursive: true })
      await chmod(layout.socketDir(project_id), 0o755)
      await deps.listen(project_id)
      const existing = await runtime.inspect(project_id)
      const stale = existing && existing.status !== 'running' && existing.spec_hash !== runtime.specHash(spec)
      if (existing && (options.recreate || stale)) await runtime.remove(project_id)
      signal.throwIfAborted()
      const state = await runtime.start(spec)
      await saveContainer(store.db, project_id, {
        status: 'running',
        reason: null,
        container_id: state.id,
        spec_hash: state.spec_hash,
      })
      await deps.prepare(project, options.progress ?? (() => undefined), signal)
      signal.throwIfAborted()
      return state
    } catch (error) {
      await saveContainer(store.db, project_id, { status: 'failed', reason: messageOf(error) })
      throw error
    }
  }

  async function requireDisk(project_id: string): Promise<void> {
    const project = await projects.require(project_id)
    requireStartable(config, project)
    if (project.container_status !== 'running') deps.requireFree()
  }

  /** Shared by all who want it at the same moment. A `recreate` is never shared with a plain start. */
  function start(project_id: string, options: StartOptions = {}): Promise<ContainerState> {
    const under = starting.get(project_id)
    if (under && !options.recreate) return under
    const mine = deps.serial(project_id, async (signal) => {
      await requireDisk(project_id)
      await saveContainer(store.db, project_id, { failures: 0 })
      return await bringUp(project_id, options, signal)
    })
    starting.set(project_id, mine)
    const over = () => {
      if (starting.get(project_id) === mine) starting.delete(project_id)
    }
    mine.then(over, over)
    return mine
  }

  async function stop(project_id: string, grace_seconds: number): Promise<void> {
    await deps.serial(project_id, async () => {
      const { container_status } = await projects.require(project_id)
      await saveContainer(store.db, project_id, { wanted: 'stopped' })
      await runtime.stop(project_id, grace_seconds)
      await deps.onStop(project_id)
      await saveContainer(store.db, project_id, {
        status: container_status === 'absent' ? 'absent' : 'stopped',
        reason: null,
        failures: 0,
      })
    })
  }

  async function exec(project_id: string, request: ExecRequest): Promise<ExecResult> {
    const { user } = request
    // A supervisor that is connected is proof enough of its project.
    const quick = user === undefined ? deps.supervisorExec(project_id, request) : undefined
    if (quick) return await quick
    await projects.require(project_id)
    if (user !== undefined && /^(root|0+)(:|$)|:(root|0+)$/.test(user))
      throw new Fault('forbidden', 'nothing runs as root in a container', { hint: 'leave user out' })
    return await runtime.exec(project_id, request)
  }

  return { start, bringUp, stop, exec, specOf, inspect: (project_id: string) => runtime.inspect(project_id) }
}
export type Containers = ReturnType<typeof createContainers>
