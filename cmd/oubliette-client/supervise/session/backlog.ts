// Events that the server has not committed when a session is ended. A turn that is interrupted by `cancel` or `end` may have
// produced far more output than can be sent soon: output beyond a bound is discarded, and one event reports how much. A turn
// that ended by itself loses nothing.
import type { DroidEvent } from '../../../../internal/droid/droid.ts'
import type { Journal } from '../../../../internal/supervisor/journal.ts'
import type { Sender } from './sender.ts'

const keptBytes = 64 * 1024
const readBytes = 1024 * 1024

/** Event types that carry output. The state of the session depends on the other types, which are always kept. */
const output = new Set(['delta', 'thought', 'message', 'tool_call', 'tool_result', 'plan', 'update'])
/** Matches the journal's encoding, so that not every event is parsed. */
const typeIn = (line: string): string | undefined => /^\{"at":"[^"]*","type":"(\w+)"/.exec(line)?.[1]

function withoutSeq(line: string): DroidEvent {
  const { seq: _, ...event } = JSON.parse(line) as DroidEvent
  return event as DroidEvent
}

export function createBacklog(journal: Journal, sender: Pick<Sender, 'sent_seq'>) {
  let interrupted = false
  let ending = false
  const discarded = { events: 0, bytes: 0 }

  const discard = (bytes: number) => {
    discarded.events += 1
    discarded.bytes += bytes
  }

  /** The events after the bound that are kept; the others are counted. */
  function filterFrom(first: number): DroidEvent[] {
    const kept: DroidEvent[] = []
    for (let seq = first; ; ) {
      const batch = journal.read(seq, readBytes)
      if (!batch) return kept
      for (const line of batch.lines) {
        const event = output.has(typeIn(line) ?? '') ? undefined : withoutSeq(line)
        if (event && !output.has(event.type)) kept.push(event)
        else discard(line.length)
      }
      seq = batch.last_seq + 1
    }
  }

  function discardExcess(): void {
    // Disk full: the events in memory cannot be rewritten, and are few.
    if (!journal.flush()) return
    const bound = journal.read(journal.acked_seq + 1, keptBytes)?.last_seq ?? journal.acked_seq
    const first = Math.max(bound, sender.sent_seq) + 1
    if (first >= journal.next_seq) return
    const kept = filterFrom(first)
    if (discarded.events === 0) return
    journal.rewind(first)
    for (const event of kept) journal.append(event)
  }

  return {
    get ending() {
      return ending
    },
    /** False if the event is discarded. All output after a discarded event is discarded too. */
    accepts(event: DroidEvent): boolean {
      if (!ending || !interrupted || !output.has(event.type)) return true
      if (discarded.events === 0 && journal.backlog_bytes <= keptBytes) return true
      discard(JSON.stringify(event).length)
      return false
    },
    /** The running turn is cancelled or ended from outside. */
    interrupt(): void {
      interrupted = true
    },
    end(): void {
      ending = true
      if (interrupted && journal.backlog_bytes > keptBytes) discardExcess()
    },
    /** A new turn begins, or the session is resumed. */
    reset(): void {
      interrupted = false
      ending = false
      discarded.events = 0
      discarded.bytes = 0
    },
    /** A warning about the discarded events, for the end of the session. */
    takeDiscarded(): DroidEvent | undefined {
      const { events, bytes } = discarded
      if (events === 0) return undefined
      discarded.events = 0
      discarded.bytes = 0
      return {
        type: 'warning',
        message: `${events} events (${bytes} bytes) were dropped: the session was ended before they were stored`,
        dropped_events: events,
        dropped_bytes: bytes,
      }
    },
  }
}
