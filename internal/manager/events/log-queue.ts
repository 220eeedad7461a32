// Queue of event batches, and the selection for the next commit. Commits run one after another and are bounded in size, so
// that each is short. Containers take turns. Sessions that sent little recently (calm) precede those that send a lot (bulk),
// which get at least half of each commit.
import { createRecentBytes, type RecentBytes } from '../../lib/recent-bytes.ts'

export type Queued = { project_id: string; events: unknown[]; characters: number }

/** Per commit, which is assembled in one turn of the event loop. */
const mostEvents = 5_000
const mostCharacters = 256 * 1024
const mostRemembered = 10_000

/** Per part of a batch: a larger batch is written in several commits, alternating with others. */
const partEvents = 1_000
const partCharacters = 64 * 1024

/** `json` is the data of each event, as text. */
export function partsOf<E>(events: E[], json: string[]) {
  const parts: { events: E[]; json: string[]; characters: number }[] = []
  for (const [at, event] of events.entries()) {
    const text = json[at]!
    const last = parts.at(-1)
    const fits = last && last.events.length < partEvents && last.characters + text.length <= partCharacters
    const part = fits ? last : { events: [], json: [], characters: 0 }
    if (!fits) parts.push(part)
    part.events.push(event)
    part.json.push(text)
    part.characters += text.length
  }
  return parts
}

type Room = { events: number; characters: number }

function createLane<T extends Queued>() {
  /** By project, in the order of their turns. */
  const lines = new Map<string, T[]>()

  return {
    get empty() {
      return lines.size === 0
    },
    push(job: T): void {
      const line = lines.get(job.project_id)
      if (line) line.push(job)
      else lines.set(job.project_id, [job])
    },
    /** As many as fit, and at least one. */
    take(room: Room): T[] {
      const taken: T[] = []
      for (const [project_id, line] of lines) {
        const job = line[0]!
        const fits = job.events.length <= room.events && job.characters <= room.characters
        if (taken.length > 0 && !fits) break
        room.events -= job.events.length
        room.characters -= job.characters
        taken.push(job)
        line.shift()
        lines.delete(project_id)
        // At the end of the map, where this loop reaches it again.
        if (line.length > 0) lines.set(project_id, line)
      }
      return taken
    },
  }
}

export function createLogQueue<T extends Queued>() {
  const calm = createLane<T>()
  const bulk = createLane<T>()
  const recent = new Map<string, RecentBytes>()

  function recentOf(session_id: string): RecentBytes {
    const known = recent.get(session_id)
    if (known) return known
    // Clearing is harmless: a bulk session counts as calm for one batch.
    if (recent.size >= mostRemembered) recent.clear()
    const made = createRecentBytes()
    recent.set(session_id, made)
    return made
  }

  return {
    get empty() {
      return calm.empty && bulk.empty
    },
    /** The parts of one batch keep their order. Several queued batches of one session may be reordered. */
    push(session_id: string, parts: T[]): void {
      const sent = recentOf(session_id)
      const characters = parts.reduce((sum, part) => sum + part.characters, 0)
      const lane = sent.isLightWith(characters) ? calm : bulk
      sent.add(characters)
      for (const part of parts) lane.push(part)
    },
    take(): T[] {
      const room = { events: mostEvents / 2, characters: mostCharacters / 2 }
      const first = calm.take(room)
      room.events += mostEvents / 2
      room.characters += mostCharacters / 2
      return [...first, ...bulk.take(room)]
    },
  }
}
