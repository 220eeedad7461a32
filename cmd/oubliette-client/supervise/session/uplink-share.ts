// Sessions of one container share its connection to the server. Only so many bytes are under way at once: what the server
// has not committed yet stands before everything that is sent after it. Sessions that send a lot take turns with small
// batches, the smaller the more of them there are; those that sent little lately go before them, and send on while what
// they sent is not committed yet.
import {
  CALM_BATCH_BYTES,
  createRecentBytes,
  type RecentBytes,
} from '../../../../internal/lib/recent-bytes.ts'

const WINDOW_BYTES = 128 * 1024
const SMALLEST_BYTES = 16 * 1024
/** Of one session that sends little, under way at the same time. */
const CALM_BATCHES = 4
/** What all sessions together may have read ahead of what is committed, and each of them at least and at most. */
const AHEAD_BYTES = 1024 * 1024
const LEAST_AHEAD_BYTES = 32 * 1024
const MOST_AHEAD_BYTES = 512 * 1024

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

type Flow = Sending & { recent: RecentBytes; under_way: Map<Lane, number> }
type Lane = { waiting: Set<Flow>; bytes: number; flows: number }

export function createUplinkShare(window_bytes = WINDOW_BYTES): UplinkShare {
  const calm: Lane = { waiting: new Set(), bytes: 0, flows: 0 }
  const bulk: Lane = { waiting: new Set(), bytes: 0, flows: 0 }
  let serving = false
  let again = false

  const batchBytes = (lane: Lane): number => {
    if (lane === calm) return CALM_BATCH_BYTES
    const share = window_bytes / (lane.flows + lane.waiting.size)
    return Math.max(SMALLEST_BYTES, Math.min(window_bytes, Math.floor(share)))
  }

  function count(flow: Flow, lane: Lane, by: 1 | -1): void {
    flow.under_way.set(lane, (flow.under_way.get(lane) ?? 0) + by)
    lane.flows += by
  }

  /** The order in which batches of both lanes are committed is not known. */
  function mayStart({ under_way }: Flow, lane: Lane): boolean {
    const [quiet = 0, loud = 0] = [under_way.get(calm), under_way.get(bulk)]
    return loud === 0 && (lane === calm ? quiet < CALM_BATCHES : quiet === 0)
  }

  function start(flow: Flow, lane: Lane): void {
    const sent = flow.send(batchBytes(lane))
    if (!sent) return
    count(flow, lane, 1)
    flow.recent.add(sent.bytes)
    lane.bytes += sent.bytes
    void sent.settled.then(() => {
      count(flow, lane, -1)
      lane.bytes -= sent.bytes
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
    if (calm.waiting.has(flow) || bulk.waiting.has(flow)) return
    const lane = flow.recent.calmWith(flow.backlog_bytes()) ? calm : bulk
    if (mayStart(flow, lane)) lane.waiting.add(flow)
  }

  return {
    get ahead_bytes() {
      const share = AHEAD_BYTES / Math.max(1, bulk.flows + bulk.waiting.size)
      return Math.max(LEAST_AHEAD_BYTES, Math.min(MOST_AHEAD_BYTES, Math.floor(share)))
    },
    join(sending) {
      const flow: Flow = { ...sending, recent: createRecentBytes(), under_way: new Map() }
      return () => {
        enqueue(flow)
        serve()
      }
    },
  }
}
