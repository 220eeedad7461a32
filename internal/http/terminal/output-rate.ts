// Limits the output of all terminals of a project together. Terminals take turns, one piece each: without an order, those with
// small pieces would take what a large piece waits for, and its terminal would stand still.
import type { Rate } from '../../auth/rate.ts'

export interface OutputRate {
  /** Settles when so many bytes may be sent. */
  take(project_id: string, bytes: number): Promise<void>
}

const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms))

export function createOutputRate(rate: Rate): OutputRate {
  /** The last of those that wait, by project. */
  const lines = new Map<string, Promise<void>>()

  async function untilTaken(project_id: string, bytes: number): Promise<void> {
    for (let taken = rate.take(project_id, bytes); !taken.ok; taken = rate.take(project_id, bytes))
      await pause(taken.retry_after_seconds * 1000)
  }

  return {
    async take(project_id, bytes) {
      const before = lines.get(project_id)
      const turn = before ? before.then(() => untilTaken(project_id, bytes)) : untilTaken(project_id, bytes)
      lines.set(project_id, turn)
      await turn
      if (lines.get(project_id) === turn) lines.delete(project_id)
    },
  }
}
