// The disk limit of a project: what is counted, when it is exceeded, and what is still allowed then. Pure functions.
//
//   ok ──over the limit──▶ stopping ──sessions failed, container stopped──▶ over ──below the limit again──▶ ok
//                              ▲                                              │
//                              └── grew beyond the ceiling while cleaning up ─┘

import type { Limits } from '../../config/limits.ts'
import type { Config } from '../../config/load.ts'
import { Fault } from '../../fault.ts'
import type { Measure } from '../../files/measure.ts'
import type { ProjectWithContainer } from '../../store/rows/projects.ts'
import type { DiskState } from '../../store/schema.ts'

export const mebibyte = 1024 * 1024

/** Inodes can run out before blocks: every entry counts with at least this size on average. */
export const averageEntryBytes = 8 * 1024

export type DiskLimit = {
  limit: number
  /** Up to this size the container may run, so that files can be removed. */
  ceiling: number
}

export function diskLimit(config: Config, project: { limits: Partial<Limits> }): DiskLimit {
  const limit = (project.limits.disk_mb ?? config.limits.disk_mb) * mebibyte
  return { limit, ceiling: Math.floor(limit * 1.1) + 256 * mebibyte }
}

/** A tree that could not be measured completely counts as over the limit. */
export function usedBytes(trees: Measure[], layer_bytes: number, { limit }: DiskLimit): number {
  const bytes = trees.reduce((sum, tree) => sum + tree.bytes, layer_bytes)
  const entries = trees.reduce((sum, tree) => sum + tree.entries, 0)
  const used = Math.max(bytes, entries * averageEntryBytes)
  return trees.every(({ complete }) => complete) ? used : Math.max(used, limit + 1)
}

export function nextState(
  before: DiskState,
  running: boolean,
  used: number,
  { limit, ceiling }: DiskLimit,
): DiskState {
  if (before === 'stopping') return 'stopping'
  if (used <= limit) return 'ok'
  if (before === 'ok') return 'stopping'
  return running && used > ceiling ? 'stopping' : 'over'
}

const inMebibytes = (bytes: number) => Math.ceil(bytes / mebibyte).toLocaleString('en-US')

export const overReason = (used: number, { limit }: DiskLimit): string =>
  `uses ${inMebibytes(used)} MiB of disk, the limit is ${inMebibytes(limit)} MiB (limits.disk_mb)`

const cleanUpHint =
  'start the container and remove files with container exec, delete a workspace, or have an admin raise limits.disk_mb'
const noStartHint = 'delete a workspace or the project, or have an admin raise limits.disk_mb'

type Row = Pick<ProjectWithContainer, 'limits' | 'disk_state' | 'disk_used_bytes'>

/** By the current limit: a limit that was raised takes effect at once. */
const exceeds = (row: Row, { limit }: DiskLimit) =>
  row.disk_state !== 'ok' && (row.disk_used_bytes ?? 0) > limit

/** Throws `exhausted` while nothing may be written for a project. */
export function requireDiskSpace(config: Config, row: Row): void {
  const limit = diskLimit(config, row)
  if (exceeds(row, limit))
    throw new Fault('exhausted', `the project ${overReason(row.disk_used_bytes ?? 0, limit)}`, {
      hint: cleanUpHint,
    })
}

/** Throws `exhausted` if a project exceeds its limit by so much that its container may not even start to clean up. */
export function requireStartable(config: Config, row: Row): void {
  const limit = diskLimit(config, row)
  if (exceeds(row, limit) && (row.disk_used_bytes ?? 0) > limit.ceiling)
    throw new Fault('exhausted', `the project ${overReason(row.disk_used_bytes ?? 0, limit)}`, {
      hint: noStartHint,
    })
}

export const shownDisk = (config: Config, row: Row & Pick<ProjectWithContainer, 'disk_measured_at'>) => {
  const limit = diskLimit(config, row)
  return {
    used_mb: row.disk_used_bytes === null ? null : Math.ceil(row.disk_used_bytes / mebibyte),
    limit_mb: limit.limit / mebibyte,
    over: exceeds(row, limit),
    measured_at: row.disk_measured_at,
  }
}
