// Gemini CLI names the file of a conversation by the minute in which it began. When it takes one up again it first opens a
// new file for it, and within the same minute that is the same file: the conversation is overwritten before it is read.
// So the file gets a name that no minute of ours has.
import { existsSync, globSync, renameSync } from 'node:fs'
import { dirname, join } from 'node:path'

const anotherTime = '1970-01-01T00-00'

export function keepHistory(home: string, agent_session_id: string): void {
  const id = agent_session_id.slice(0, 8)
  if (!/^[0-9a-f]{8}$/.test(id)) return
  const [first] = globSync(join(home, '.gemini/tmp/*/chats', `session-*-${id}.jsonl`)).sort()
  if (first === undefined) return
  const kept = join(dirname(first), `session-${anotherTime}-${id}.jsonl`)
  // Once it has that name it is the one that is read and written; others of its id are only beginnings.
  if (!existsSync(kept)) renameSync(first, kept)
}
