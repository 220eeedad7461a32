// Brings one session's journal to the server: one batch under way at a time, the next when it is committed, again from
// the last committed event after each new connection.
import { setTimeout as delay } from 'node:timers/promises'
import { messageOf } from '../../internal/fault.ts'
import { jsonBounds, measureJson } from '../../internal/json-bounds.ts'
import type { Log } from '../../internal/log.ts'
import type { Journal } from '../../internal/relay/journal.ts'
import { type Peer, RawJson } from '../../internal/relay/peer.ts'
import type { EventsAnswer } from '../../internal/relay/protocol.ts'

const BATCH_BYTES = 256 * 1024
/** Whatever is in it, less than this has no more values than a frame may hold. */
const DENSE_BATCH_BYTES = 32 * 1024
const PAUSE_MS = 2000

export interface Sender {
  attach(peer: Peer, committed_seq: number): void
  /** There may be something new. */
  kick(): void
  readonly all_committed: boolean
}

export function createSender(options: {
  session_id: string
  journal: Journal
  log: Log
  on_unknown(): void
  on_committed(): void
}): Sender {
  const { session_id, journal, log } = options
  let peer: Peer | undefined
  let sending = false

  function nextBatch() {
    const batch = journal.read(journal.acked_seq + 1, BATCH_BYTES)
    if (!batch) return undefined
    const { things, commas } = measureJson(batch.events, jsonBounds.values)
    // The frame around it has a few of its own.
    if (things + commas < jsonBounds.values - 100) return batch
    return journal.read(journal.acked_seq + 1, DENSE_BATCH_BYTES)
  }

  async function pump(): Promise<void> {
    if (sending) return
    sending = true
    let failures = 0
    try {
      while (peer?.open) {
        const to = peer
        const batch = nextBatch()
        if (!batch) break
        const params = new RawJson(`{"session_id":${JSON.stringify(session_id)},"events":[${batch.events}]}`)
        try {
          const answer = (await to.request('events', params)) as EventsAnswer
          failures = 0
          if ('unknown' in answer) return options.on_unknown()
          journal.ack(answer.committed_seq)
          options.on_committed()
        } catch (error) {
          if (!to.open) continue
          log.warn('events were not taken', { session_id, why: messageOf(error) })
          await delay(Math.min(50 * 2 ** failures++, PAUSE_MS))
        }
      }
    } finally {
      sending = false
    }
  }

  return {
    attach(to, committed_seq) {
      peer = to
      journal.ack(committed_seq)
      journal.skipTo(committed_seq + 1)
      void pump()
    },
    kick: () => void pump(),
    get all_committed() {
      return journal.acked_seq === journal.next_seq - 1
    },
  }
}
