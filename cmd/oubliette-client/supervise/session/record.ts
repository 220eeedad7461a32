// The state of a session that must survive a restart of the container, stored beside its journal. It is written right after
// the events it follows from; on recovery, the journal, which still has those events, takes precedence.
import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { isFinal } from '../../../../internal/protocol/session-status.ts'
import { inDirectory } from '../../../../internal/supervisor/in-directory.ts'
import type { Journal } from '../../../../internal/supervisor/journal.ts'

export type SessionRecord = {
  session_id: string
  live: boolean
  status: string
  agent_session_id: string | null
  /** Accepted and not ended. */
  open_turns: string[]
}

const fileIn = (directory: string) => join(directory, 'session.json')

export function saveRecord(directory: string, record: SessionRecord): void {
  inDirectory(directory, () =>
    writeFileSync(`${fileIn(directory)}.new`, JSON.stringify(record), { mode: 0o600 }),
  )
  renameSync(`${fileIn(directory)}.new`, fileIn(directory))
}

export function loadRecord(directory: string, session_id: string): SessionRecord {
  try {
    return JSON.parse(readFileSync(fileIn(directory), 'utf8')) as SessionRecord
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' && !(error instanceof SyntaxError)) throw error
    return { session_id, live: false, status: 'failed', agent_session_id: null, open_turns: [] }
  }
}

/** Which turns ended, and whether the session ended, according to the events that the journal still has. */
export function readOutcomes(journal: Journal): { ended_turns: Set<string>; over: boolean } {
  const ended_turns = new Set<string>()
  let over = false
  for (let seq = journal.acked_seq + 1; ; ) {
    const batch = journal.read(seq, 1024 * 1024)
    if (!batch) return { ended_turns, over }
    for (const event of JSON.parse(`[${batch.events}]`) as Record<string, unknown>[]) {
      if (event.type === 'completion') ended_turns.add(String(event.turn_id))
      if (event.type === 'status') over = isFinal(String(event.status))
    }
    seq = batch.last_seq + 1
  }
}
