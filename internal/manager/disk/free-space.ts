// The free space of the disk that holds OUBLIETTE_HOME: how much is left, and how much was written since the server started.
import { statfs } from 'node:fs/promises'
import type { Config } from '../../config/load.ts'
import { Fault } from '../../fault.ts'
import { mebibyte } from './limit.ts'

/** Only decreases of free space are counted: files that are removed meanwhile do not hide what is written. */
export type Written = { bytes: number; entries: number }

export function createFreeSpace({ config, layout }: { config: Config; layout: { home: string } }) {
  let free: { bytes: number; entries: number } | undefined
  const written: Written = { bytes: 0, entries: 0 }

  return {
    written: written as Readonly<Written>,
    async sample(): Promise<void> {
      const { bavail, bsize, ffree } = await statfs(layout.home)
      const now = { bytes: bavail * bsize, entries: ffree }
      written.bytes += Math.max(0, (free?.bytes ?? now.bytes) - now.bytes)
      written.entries += Math.max(0, (free?.entries ?? now.entries) - now.entries)
      free = now
    },
    /** As last sampled. */
    freeMb: (): number | null => (free ? Math.floor(free.bytes / mebibyte) : null),
    /** The actions that `requireFree` guards. */
    refused: ['session spawn', 'container start'],
    /** Throws `exhausted` while the disk of the server is nearly full. */
    requireFree(): void {
      const floor = config.min_free_disk_mb * mebibyte
      if (!free || free.bytes >= floor) return
      const left = Math.floor(free.bytes / mebibyte).toLocaleString('en-US')
      throw new Fault(
        'exhausted',
        `the disk of the server has ${left} MiB free, less than min_free_disk_mb`,
        {
          hint: 'free space on the disk of OUBLIETTE_HOME',
          retry_after_seconds: 60,
        },
      )
    },
  }
}
export type FreeSpace = ReturnType<typeof createFreeSpace>
