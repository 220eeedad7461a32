// Containers, and nothing about agents. One interface, so that another engine can implement it; `docker/` is the only folder that
// imports dockerode. Every object it creates has the labels `oubliette.instance` and `oubliette.project` or `oubliette.upstream`,
// and every method is safe to repeat. The managers decide which containers exist.

import type { Readable, Writable } from 'node:stream'

export type NetworkMode = 'none' | 'internal' | 'open'

export type ContainerSpec = {
  project_id: string
  image: string
  /** The main process; runs under an init that reaps zombies. */
  command: string[]
  /** "uid:gid"; never root. */
  user: string
  env: Record<string, string>
  mounts: { source: string; target: string; read_only: boolean }[]
  working_dir: string
  network: NetworkMode
  /** For an open network; the engine's default if empty. */
  dns_servers: string[]
  memory_mb: number
  cpus: number
  pids: number
  /** Maximum size of a file. */
  file_mb: number
  read_only_root: boolean
}

export type ContainerState = {
  id: string
  status: 'created' | 'running' | 'paused' | 'restarting' | 'exited' | 'dead'
  image: string
  started_at: string | null
  finished_at: string | null
  exit_code: number | null
  oom_killed: boolean
  memory_mb: number
  /** Hash of the spec it was created from; with another hash it has to be recreated. */
  spec_hash: string
}

/** A program in a container of its own, used through its streams. It leaves nothing behind. */
export type ProcessSpec = Omit<ContainerSpec, 'project_id' | 'read_only_root'> & {
  upstream_id: string
  /** Whose limits it has; undefined for one of the whole server. */
  project_id?: string
}

export type RuntimeProcess = {
  stdin: Writable
  stdout: Readable
  stderr: Readable
  /** Resolves once, when all its processes are gone. */
  ended: Promise<{ exit_code: number | null; reason: string }>
  /** Ends all its processes; safe to repeat. */
  kill(): Promise<void>
}

export type LogLine = { stream: 'stdout' | 'stderr'; at: string; text: string }
export type ContainerEvent = {
  project_id: string
  container_id: string
  action: 'start' | 'die' | 'oom' | 'pause' | 'unpause' | 'destroy'
  exit_code?: number
}
export type ImageState = {
  type: string
  reference: string
  built: boolean
  size_bytes: number | null
  created_at: string | null
}
/** A line of output of a build, and the step that it belongs to: `done` of `total` steps of the type and its bases have ended. */
export type BuildReport = { line: string; step: string; done: number; total: number }
export type BuildProgress = (report: BuildReport) => void
/** `rebuilt`: false if the image was current. */
export type BuiltImage = ImageState & { rebuilt: boolean }

export type Owned = {
  project_id: string
  kind: 'container' | 'network' | 'volume'
  status?: ContainerState['status']
  /** Host directories mounted into the container. */
  mounts?: string[]
}

export type EngineDescription = {
  version: string
  storage_driver: string
  cgroup_version: string
  /** Limits of containers that have no effect on this engine. */
  missing_limits: string[]
  /** Containers survive a restart of the engine. */
  live_restore: boolean
  /** Null if it is on another machine. */
  data_directory: string | null
  /** The clock of the engine. */
  time: string
}

export interface Runtime {
  /** Throws `unavailable` when the engine does not answer. */
  ping(signal?: AbortSignal): Promise<{ engine: string; version: string }>
  describe(signal?: AbortSignal): Promise<EngineDescription>
  /** Checks the engine every few seconds until the signal is aborted; while it hangs, requests fail at once. */
  watch(signal: AbortSignal): void
  /** Blocks containers from the host's ports and private addresses; throws `unavailable` if that fails. */
  protect(): Promise<void>
  /**
   * Creates a missing container and starts a stopped one. A running one is left alone, even if the spec differs (the caller
   * compares hashes). Throws `conflict` if it is paused.
   */
  start(spec: ContainerSpec): Promise<ContainerState>
  stop(project_id: string, grace_seconds: number): Promise<void>
  /** Freezes all its processes. No-op if it is paused. */
  pause(project_id: string): Promise<void>
  /** No-op if it is not paused. */
  unpause(project_id: string): Promise<void>
  /** Whether it last ended through the engine: stopped, killed or removed from outside. */
  endedFromOutside(container_id: string): Promise<boolean>
  /** The container, its anonymous volumes and its network. No error if there is none. */
  remove(project_id: string): Promise<void>
  inspect(project_id: string): Promise<ContainerState | undefined>
  /** Bytes in its writable layer, without mounts; 0 if there is no container. */
  writableBytes(project_id: string): Promise<number>
  specHash(spec: ContainerSpec): string
  /** Containers, networks and volumes of projects of this instance in the engine. */
  owned(): Promise<Owned[]>
  /**
   * Starts a program in a hardened container with a read-only root. Its stdin ends when this process dies; what does not end by
   * that is removed by `sweepProcesses`.
   */
  openProcess(spec: ProcessSpec, signal: AbortSignal): Promise<RuntimeProcess>
  /** Names of the containers of `openProcess` that this process does not use. */
  unusedProcesses(): Promise<string[]>
  /** Removes these, and their networks; returns how many. */
  sweepProcesses(): Promise<number>
  logs(
    project_id: string,
    options: { tail?: number; since?: string; follow?: boolean; signal?: AbortSignal },
  ): AsyncIterable<LogLine>
  /** Reconnects automatically; ends when the signal is aborted. */
  events(signal: AbortSignal): AsyncIterable<ContainerEvent>
  /** Every container type (a folder of `images/`) and whether it is built. */
  images(): Promise<ImageState[]>
  /** References of images of container types, also those that are superseded. */
  builtImages(): Promise<string[]>
  /** The reference of a built container type, or of any image in the engine; does not build or pull. */
  resolveImage(type_or_reference: string): Promise<string | undefined>
  /** The container types that a type is based on, nearest first; undefined if there is no such type. */
  basesOf(type: string): Promise<string[] | undefined>
  /**
   * Builds the type and its base types if they are not built, or the type anew with `no_cache`. One build of a type at a time;
   * concurrent calls share it, and it is cancelled when the signals of all of them are aborted.
   */
  build(
    type: string,
    options: { no_cache?: boolean; progress?: BuildProgress; signal?: AbortSignal },
  ): Promise<BuiltImage>
}
