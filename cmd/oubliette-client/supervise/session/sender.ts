// Brings one session's journal to the server: the next batch when it is this session's turn, again from the last committed
// event after each new connection. Batches that are under way at the same time are committed in their order, or again.

import { jsonBounds, measureJson } from '../../../../internal/event-loop/json-bounds.ts'
import { messageOf } from '../../../../internal/fault.ts'
import type { Log } from '../../../../internal/log.ts'
import type { EventsAnswer } from '../../../../internal/protocol/messages.ts'
import { type Peer, RawJson } from '../../../../internal/protocol/peer.ts'
import type { Journal } from '../../../../internal/supervisor/journal.ts'
import type { UplinkShare } from './uplink-share.ts'

/** Whatever is in it, less than this has no more values than a frame may hold. */
const DENSE_BATCH_BYTES = 32 * 1024
const FIRST_PAUSE_MS = 50
const LONGEST_PAUSE_MS = 2000

export interface Sender {
  attach(peer: Peer, committed_seq: number): void
  /** There may be something new. */
  kick(): void
  /** Nothing more of it is sent. */
  stop(): void
  readonly all_committed: boolean
  readonly connected: boolean
  /** The server may have everything up to this number. */
  readonly sent_seq: number
}

export function createSender(options: {
  session_id: string
  journal: Journal
  share: UplinkShare
  log: Log
  on_unknown(): void
  on_committed(): void
  on_disconnected(): void
}): Sender {
  const { session_id, journal, log } = options
  let peer: Peer | undefined
  let failures = 0
  let pausing = false
  let stopped = false
  // What was found on the disk may have been sent before this process was started.
  let sent_seq = journal.next_seq - 1
  /** Up to here it is under way on this connection. */
  let under_way_seq = -1

  function nextBatch(max_bytes: number) {
    const first = Math.max(journal.acked_seq, under_way_seq) + 1
    const batch = journal.read(first, max_bytes)
    if (!batch) return undefined
    const { things, commas } = measureJson(batch.events, jsonBounds.values)
    // The frame around it has a few of its own.
    if (things + commas < jsonBounds.values - 100) return batch
    return journal.read(first, DENSE_BATCH_BYTES)
  }

  /** A server that does not take events is asked again after a while. */
  function pause(error: unknown): void {
    log.warn('events were not taken', { session_id, why: messageOf(error) })
    pausing = true
    setTimeout(
      () => {
        pausing = false
        kick()
      },
      Math.min(FIRST_PAUSE_MS * 2 ** failures++, LONGEST_PAUSE_MS),
    )
  }

  /** What is not committed is sent again. The server knows what it has by the numbers. */
  const goBack = () => {
    under_way_seq = journal.acked_seq
  }

  async function send(to: Peer, events: string, last_seq: number): Promise<void> {
    const params = new RawJson(`{"session_id":${JSON.stringify(session_id)},"events":[${events}]}`)
    try {
      const answer = (await to.request('events', params)) as EventsAnswer
      failures = 0
      if ('unknown' in answer) {
        stopped = true
        return options.on_unknown()
      }
      journal.ack(answer.committed_seq)
      // One before it was not taken.
      if (answer.committed_seq < last_seq && to === peer) goBack()
      options.on_committed()
    } catch (error) {
      if (to === peer) goBack()
      if (to.open) pause(error)
    }
  }

  const kick = options.share.join({
    send(max_bytes) {
      if (!peer?.open || pausing || stopped) return undefined
      const batch = nextBatch(max_bytes)
      if (!batch) return undefined
      sent_seq = Math.max(sent_seq, batch.last_seq)
      under_way_seq = batch.last_seq
      return { bytes: batch.events.length, settled: send(peer, batch.events, batch.last_seq) }
    },
    backlog_bytes: () => journal.backlog_bytes,
  })

  return {
    attach(to, committed_seq) {
      peer = to
      void to.closed.then(() => {
        if (peer === to) options.on_disconnected()
      })
      journal.ack(committed_seq)
      journal.skipTo(committed_seq + 1)
      goBack()
      kick()
    },
    kick,
    stop() {
      stopped = true
    },
    get all_committed() {
      return journal.acked_seq === journal.next_seq - 1
    },
    get connected() {
      return peer?.open === true
    },
    get sent_seq() {
      return sent_seq
    },
  }
}
