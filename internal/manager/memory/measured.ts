// The memory of sessions as their supervisors measure it. A hint, kept in memory only: a container that reports false values
// only harms itself.

import { messageOf } from '../../fault.ts'
import type { Log } from '../../log.ts'
import type { Relay } from '../../relay/relay.ts'

const mebibyte = 1024 * 1024
const answerMs = 5_000

type Deps = { relay: Pick<Relay, 'supervisor'>; paused: (project_id: string) => boolean; log: Log }

export function createMeasuredMemory({ relay, paused, log }: Deps) {
  const asking = new Set<string>()
  /** By project, so that a container cannot report values for sessions of another. */
  const measured = new Map<string, Map<string, number>>()

  async function ask(project_id: string): Promise<void> {
    const link = relay.supervisor(project_id)
    if (!link) return
    const { sessions } = await link.send('state', {}, { timeout_ms: answerMs })
    const mb = sessions.map(
      ({ session_id, memory_bytes = 0 }) => [session_id, Math.ceil(memory_bytes / mebibyte)] as const,
    )
    measured.set(project_id, new Map(mb))
  }

  return {
    /** 0 if unknown. */
    of: (project_id: string, session_id: string): number => measured.get(project_id)?.get(session_id) ?? 0,
    /** In the background: a container that does not answer delays nothing. */
    sweep(project_ids: string[]): void {
      const known = new Set(project_ids)
      for (const project_id of measured.keys()) if (!known.has(project_id)) measured.delete(project_id)
      for (const project_id of project_ids) {
        if (asking.has(project_id) || paused(project_id)) continue
        asking.add(project_id)
        ask(project_id)
          .catch((error: unknown) =>
            log.debug('failed to measure the memory of sessions', { project_id, reason: messageOf(error) }),
          )
          .finally(() => asking.delete(project_id))
      }
    },
  }
}
export type MeasuredMemory = ReturnType<typeof createMeasuredMemory>
