// Containers, and nothing about agents. One interface, so that another engine can stand behind it; `docker/` is
// the only file that imports dockerode. Whatever it makes carries the labels `oubliette.instance` and
// `oubliette.project`, and every method is safe to repeat. Who wants which container is the managers' business.

export type NetworkMode = 'none' | 'internal' | 'open'

export type ContainerSpec = {
  project_id: string
  image: string
  /** The main process; under an init that reaps. */
  command: string[]
  /** "uid:gid"; never root. */
  user: string
  env: Record<string, string>
  mounts: { source: string; target: string; read_only: boolean }[]
  working_dir: string
  network: NetworkMode
  /** On an open network; the engine's if empty. */
  dns_servers: string[]
  memory_mb: number
  cpus: number
  pids: number
  /** No file of it grows beyond this. */
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
  /** Of the spec it was made from: another hash means that it has to be made anew to fit. */
  spec_hash: string
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
export type BuildProgress = (line: string) => void

export type Owned = {
  project_id: string
  kind: 'container' | 'network' | 'volume'
  status?: ContainerState['status']
  /** Directories of the host that a container has mounted. */
  mounts?: string[]
}

export interface Runtime {
  /** Throws `unavailable` when the engine does not answer. */
  ping(signal?: AbortSignal): Promise<{ engine: string; version: string }>
  /** Asks the engine every few seconds, until the signal: while it hangs, requests fail at once. */
  watch(signal: AbortSignal): void
  /** Makes sure that containers cannot reach the host's ports or private addresses; `unavailable` if it cannot. */
  protect(): Promise<void>
  /**
   * Missing: made. Stopped: started. Running: left alone, also when the spec differs (the caller compares hashes). Paused:
   * `conflict`.
   */
  start(spec: ContainerSpec): Promise<ContainerState>
  stop(project_id: string, grace_seconds: number): Promise<void>
  /** Freezes all its processes. Nothing happens if it is paused. */
  pause(project_id: string): Promise<void>
  /** Nothing happens if it is not paused. */
  unpause(project_id: string): Promise<void>
  /** Whether its last end came through the engine: somebody stopped, killed or removed it. */
  endedFromOutside(container_id: string): Promise<boolean>
  /** The container, its anonymous volumes and its network. No error if there is none. */
  remove(project_id: string): Promise<void>
  inspect(project_id: string): Promise<ContainerState | undefined>
  /** What its processes wrote into its own layer, beside the mounts; 0 if there is no container. */
  writableBytes(project_id: string): Promise<number>
  specHash(spec: ContainerSpec): string
  /** Project ids of everything of this instance that exists in the engine: containers, networks, volumes. */
  owned(): Promise<Owned[]>
  logs(
    project_id: string,
    options: { tail?: number; since?: string; follow?: boolean; signal?: AbortSignal },
  ): AsyncIterable<LogLine>
  /** Endless; reconnects by itself; ends by the signal. */
  events(signal: AbortSignal): AsyncIterable<ContainerEvent>
  /** Every container type (a folder of `images/`) and whether it is built. */
  images(): Promise<ImageState[]>
  /** The reference of a container type's image, or of any image already in the engine; builds or pulls nothing. */
  resolveImage(type_or_reference: string): Promise<string | undefined>
  /** Builds the type and the types it stands on. One build of a type at a time; concurrent calls share it. */
  build(
    type: string,
    options: { no_cache?: boolean; progress?: BuildProgress; signal?: AbortSignal },
  ): Promise<ImageState>
}
