// What this folder needs of a container engine. Each engine implements it and translates its own errors.
import type { Readable } from 'node:stream'

export type EngineImage = { id: string; tags: string[] }

export type ImageEngine = {
  /** Undefined if the engine does not have the image. */
  inspect(reference: string): Promise<{ size_bytes: number; created_at: string } | undefined>
  /** These three report in JSON lines; see `progress.ts`. */
  pull(reference: string, signal: AbortSignal): Promise<Readable>
  load(tar: Readable, target: { repository: string; tag: string }, signal: AbortSignal): Promise<Readable>
  build(context: Buffer, options: BuildOptions): Promise<Readable>
  tag(reference: string, target: { repository: string; tag: string }): Promise<void>
  /** `in_use`: a container runs on it, or another image is based on it. */
  remove(reference: string): Promise<'removed' | 'missing' | 'in_use'>
  list(labels: string[]): Promise<EngineImage[]>
  /** The engine's own words for an error of one of these calls. */
  reasonOf(error: unknown): string
}

export type BuildOptions = {
  reference: string
  arguments: Record<string, string>
  labels: Record<string, string>
  host_network: boolean
  no_cache: boolean
  signal: AbortSignal
}
