// Sessions of one container share its connection to the server. Only so many bytes are under way at once: what the server
// has not committed yet stands before everything that is sent after it. Sessions that send a lot take turns with small
// batches, the smaller the more of them there are; those that sent little lately go before them.
import { calmBatchBytes, createRecentBytes, type RecentBytes } from '../../../../internal/lib/recent-bytes.ts'

const windowBytes = 128 * 1024
const smallestBytes = 16 * 1024
/** What all sessions together may have read ahead of what is committed, and each of them at least and at most. */
const aheadBytes = 1024 * 1024
const leastAheadBytes = 32 * 1024
const mostAheadBytes = 512 * 1024

/** `settled` never rejects. */
type SentBatch = { bytes: number; settled: Promise<void> }
type Sending = {
  /** Sends a batch of about that size; undefined if there is nothing to send. */
  send(max_bytes: number): SentBatch | undefined
  /** What there is to send. */
  backlog_bytes(): number
}

export interface UplinkShare {
  /** The function that is returned says that there may be something to send. */
  join(sending: Sending): () => void
  /** How much a session may have that is not committed, while the server is there: the less, the more sessions send a lot. */
  readonly ahead_bytes: number
}

type Flow = Sending & { recent: RecentBytes; under_way: boolean }
type Lane = { waiting: Set<Flow>; bytes: number; flows: number }

export function createUplinkShare(window_bytes = windowBytes): UplinkShare {
  const calm: Lane = { waiting: new Set(), bytes: 0, flows: 0 }
  const bulk: Lane = { waiting: new Set(), bytes: 0, flows: 0 }
  let serving = false
  let again = false

  const batchBytes = (lane: Lane): number => {
    if (lane === calm) return calmBatchBytes
    const share = window_bytes / (lane.flows + lane.waiting.size)
    return Math.max(smallestBytes, Math.min(window_bytes, Math.floor(share)))
  }

  function start(flow: Flow, lane: Lane): void {
    const sent = flow.send(batchBytes(lane))
    if (!sent) return
    flow.under_way = true
    flow.recent.add(sent.bytes)
    lane.bytes += sent.bytes
    lane.flows += 1
    void sent.settled.then(() => {
      flow.under_way = false
      lane.bytes -= sent.bytes
      lane.flows -= 1
      enqueue(flow)
      serve()
    })
  }

  function serveLane(lane: Lane): void {
    for (const flow of lane.waiting) {
      if (lane.bytes > 0 && lane.bytes + batchBytes(lane) > window_bytes) return
      lane.waiting.delete(flow)
      start(flow, lane)
    }
  }

  function serve(): void {
    again = true
    if (serving) return
    serving = true
    try {
      while (again) {
        again = false
        serveLane(calm)
        serveLane(bulk)
      }
    } finally {
      serving = false
    }
  }

  function enqueue(flow: Flow): void {
    if (flow.under_way || calm.waiting.has(flow) || bulk.waiting.has(flow)) return
    const lane = flow.recent.calmWith(flow.backlog_bytes()) ? calm : bulk
    lane.waiting.add(flow)
  }

  return {
    get ahead_bytes() {
      const share = aheadBytes / Math.max(1, bulk.flows + bulk.waiting.size)
      return Math.max(leastAheadBytes, Math.min(mostAheadBytes, Math.floor(share)))
    },
    join(sending) {
      const flow: Flow = { ...sending, recent: createRecentBytes(), under_way: false }
      return () => {
        enqueue(flow)
        serve()
      }
    },
  }
}
