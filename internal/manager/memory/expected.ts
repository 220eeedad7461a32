// The memory that sessions are expected to use in their container.

import { agents } from '../../agents/agents.ts'
import type { Config } from '../../config/load.ts'
import type { MemoryHolder } from '../../store/rows/session/memory.ts'

/** The supervisor and its buffers. */
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
const hasNoProcess = (config: Pick<Config, 'droids'>, { droid, status }: MemoryHolder): boolean =>
  status === 'idle' && (droid === 'shell' || config.droids[droid]?.kind === 'shell')

/** For a session that is neither queued nor hibernated: the expected or the measured memory, whichever is larger. */
export const heldMb = (config: Pick<Config, 'droids'>, session: MemoryHolder, measured_mb = 0): number =>
  Math.max(hasNoProcess(config, session) ? 0 : expectedMb(config, session.droid), measured_mb)
