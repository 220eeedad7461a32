// Sends one session's journal to the server: the next batch when the uplink share allows it, and after a reconnect from the last
// committed event. Batches in flight at the same time are committed in order, or sent again.

import { jsonBounds, measureJson } from '../../../../internal/event-loop/json-bounds.ts'
import { messageOf } from '../../../../internal/fault.ts'
import type { Log } from '../../../../internal/log.ts'
import type { EventsAnswer } from '../../../../internal/protocol/messages.ts'
import { type Peer, RawJson } from '../../../../internal/protocol/peer.ts'
import type { Journal } from '../../../../internal/supervisor/journal.ts'
import type { UplinkShare } from './uplink-share.ts'

/** A batch of this size never has more values than a frame may hold, whatever its content. */
const denseBatchBytes = 32 * 1024
const firstPauseMs = 50
const maxPauseMs = 2000

export interface Sender {
  attach(peer: Peer, committed_seq: number): void
  /** Call when there may be new events. */
  kick(): void
  /** Stops sending for good. */
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
  // Events found on disk may have been sent before this process started.
  let sent_seq = journal.next_seq - 1
  /** The last event in flight on this connection. */
  let in_flight_seq = -1

  function nextBatch(max_bytes: number) {
    const first = Math.max(journal.acked_seq, in_flight_seq) + 1
    const batch = journal.read(first, max_bytes)
    if (!batch) return undefined
    const { containers, commas } = measureJson(batch.events, jsonBounds.values)
    // The frame itself has a few more.
    if (containers + commas < jsonBounds.values - 100) return batch
    return journal.read(first, denseBatchBytes)
  }

  /** Backs off when the server does not accept events. */
  function pause(error: unknown): void {
    log.warn('failed to send events, retrying', { session_id, reason: messageOf(error) })
    pausing = true
    setTimeout(
      () => {
        pausing = false
        kick()
      },
      Math.min(firstPauseMs * 2 ** failures++, maxPauseMs),
    )
  }

  /** What is not committed is sent again. The server knows what it has by the numbers. */
  const goBack = () => {
    in_flight_seq = journal.acked_seq
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
      in_flight_seq = batch.last_seq
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
