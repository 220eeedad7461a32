// Names and labels of objects in the engine. They are derived from the instance and the project, so that a new server process
// finds what an earlier one created.
import { createHash } from 'node:crypto'
import type { ContainerSpec } from '../runtime.ts'

export const labels = {
  instance: 'oubliette.instance',
  project: 'oubliette.project',
  upstream: 'oubliette.upstream',
  spec: 'oubliette.spec',
} as const

export const digest = (...parts: string[]): string =>
  createHash('sha256').update(parts.join('\0')).digest('hex')

export type Names = {
  instance: string
  /** Of the container, and of its network. */
  of(project_id: string): string
  /**
   * An interface's name has at most 15 characters: `oub`, `i` or `o` for internal or open, four for the instance and
   * seven for the project. The firewall's rules go by these prefixes.
   */
  bridge(project_id: string, mode: 'internal' | 'open'): string
  /** What the names of all open bridges of this instance begin with. */
  open_bridges: string
  labels(project_id: string): Record<string, string>
  filter: { label: string[] }
}

const alphabet = 'abcdefghijklmnopqrstuvwxyz234567'

/** Five bits in each character, where `digest` has four. */
const letters = (length: number, ...parts: string[]): string =>
  [...Buffer.from(digest(...parts), 'hex').subarray(0, length)].map((byte) => alphabet[byte & 31]).join('')

export function createNames(instance: string): Names {
  const own = letters(4, instance)
  return {
    instance,
    of: (project_id) => `oubliette-${digest(instance).slice(0, 8)}-${project_id}`,
    bridge: (project_id, mode) => `oub${mode[0]}${own}${letters(7, instance, project_id)}`,
    open_bridges: `oubo${own}`,
    labels: (project_id) => ({ [labels.instance]: instance, [labels.project]: project_id }),
    filter: { label: [`${labels.instance}=${instance}`] },
  }
}

function canonical(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(canonical)
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value).filter(([, inner]) => inner !== undefined)
  return entries.sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, inner]) => [key, canonical(inner)])
}

/** The same for the same container, whatever order its parts were written in. */
export function specHash(spec: ContainerSpec): string {
  const mounts = spec.mounts.toSorted((a, b) => (a.target < b.target ? -1 : 1))
  return digest(JSON.stringify(canonical({ ...spec, mounts }))).slice(0, 32)
}
