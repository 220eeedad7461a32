// What sessions are expected to take of the memory of their container.

import { agents } from '../../agents/agents.ts'
import type { Config } from '../../config/load.ts'
import type { MemoryHolder } from '../../store/rows/session/memory.ts'

/** The supervisor, with room for its buffers. */
export const supervisorMb = 48
const shellMb = 8
const unknownAgentMb = 256

export function expectedMb({ droids }: Pick<Config, 'droids'>, droid: string): number {
  const entry = droids[droid]
  if (entry?.memory_mb !== undefined) return entry.memory_mb
  if (droid === 'shell' || entry?.kind === 'shell') return shellMb
  return entry?.agent ? agents[entry.agent].memory_mb : unknownAgentMb
}

/** A shell has no process between turns. */
const isAtRest = (config: Pick<Config, 'droids'>, { droid, status }: MemoryHolder): boolean =>
  status === 'idle' && (droid === 'shell' || config.droids[droid]?.kind === 'shell')

/** Of a session that is neither queued nor hibernated; what was measured counts if it is more. */
export const heldMb = (config: Pick<Config, 'droids'>, session: MemoryHolder, measured_mb = 0): number =>
  Math.max(isAtRest(config, session) ? 0 : expectedMb(config, session.droid), measured_mb)
