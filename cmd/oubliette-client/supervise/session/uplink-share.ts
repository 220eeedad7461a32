// Shares a container's connection to the server fairly among its sessions. The bytes in flight are limited, because everything
// sent later queues behind batches that the server has not committed. Sessions that send a lot alternate with small batches,
// which get smaller the more sessions there are. Sessions that sent little recently go first, and may send further batches before
// the previous one is committed.
import {
  createRecentBytes,
  lightBatchBytes,
  type RecentBytes,
} from '../../../../internal/lib/recent-bytes.ts'

const windowBytes = 128 * 1024
const minBatchBytes = 16 * 1024
/** Batches that one light session may have in flight. */
const lightBatches = 4
/** Uncommitted bytes that all sessions together may read ahead, and the minimum and maximum for each. */
const aheadBytes = 1024 * 1024
const minAheadBytes = 32 * 1024
const maxAheadBytes = 512 * 1024

/** `settled` never rejects. */
type SentBatch = { bytes: number; settled: Promise<void> }
type Sending = {
  /** Sends a batch of about this size; undefined if there is nothing to send. */
  send(max_bytes: number): SentBatch | undefined
  /** Bytes that wait to be sent. */
  backlog_bytes(): number
}

export interface UplinkShare {
  /** Call the returned function when there may be something to send. */
  join(sending: Sending): () => void
  /** Uncommitted bytes that a session may have while connected; less if many sessions send a lot. */
  readonly ahead_bytes: number
}

type Flow = Sending & { recent: RecentBytes; in_flight: Map<Lane, number> }
type Lane = { waiting: Set<Flow>; bytes: number; flows: number }

export function createUplinkShare(window_bytes = windowBytes): UplinkShare {
  const light: Lane = { waiting: new Set(), bytes: 0, flows: 0 }
  const bulk: Lane = { waiting: new Set(), bytes: 0, flows: 0 }
  let serving = false
  let again = false

  const batchBytes = (lane: Lane): number => {
    if (lane === light) return lightBatchBytes
    const share = window_bytes / (lane.flows + lane.waiting.size)
    return Math.max(minBatchBytes, Math.min(window_bytes, Math.floor(share)))
  }

  function count(flow: Flow, lane: Lane, by: 1 | -1): void {
    flow.in_flight.set(lane, (flow.in_flight.get(lane) ?? 0) + by)
    lane.flows += by
  }

  /** A session uses one lane at a time: the commit order of batches in different lanes is undefined. */
  function mayStart({ in_flight }: Flow, lane: Lane): boolean {
    const light_batches = in_flight.get(light) ?? 0
    const bulk_batches = in_flight.get(bulk) ?? 0
    return bulk_batches === 0 && (lane === light ? light_batches < lightBatches : light_batches === 0)
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
        serveLane(light)
        serveLane(bulk)
      }
    } finally {
      serving = false
    }
  }

  function enqueue(flow: Flow): void {
    if (light.waiting.has(flow) || bulk.waiting.has(flow)) return
    const lane = flow.recent.isLightWith(flow.backlog_bytes()) ? light : bulk
    if (mayStart(flow, lane)) lane.waiting.add(flow)
  }

  return {
    get ahead_bytes() {
      const share = aheadBytes / Math.max(1, bulk.flows + bulk.waiting.size)
      return Math.max(minAheadBytes, Math.min(maxAheadBytes, Math.floor(share)))
    },
    join(sending) {
      const flow: Flow = { ...sending, recent: createRecentBytes(), in_flight: new Map() }
      return () => {
        enqueue(flow)
        serve()
      }
    },
  }
}
