// Shares a container's connection to the server fairly among its sessions. The bytes in flight are limited, because everything
// sent later queues behind batches that the server has not committed. Sessions that send a lot alternate with small batches,
// which get smaller the more sessions there are; sessions that sent little recently go first.
import {
  createRecentBytes,
  lightBatchBytes,
  type RecentBytes,
} from '../../../../internal/lib/recent-bytes.ts'

const windowBytes = 128 * 1024
const minBatchBytes = 16 * 1024
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

type Flow = Sending & { recent: RecentBytes; in_flight: boolean }
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

  function start(flow: Flow, lane: Lane): void {
    const sent = flow.send(batchBytes(lane))
    if (!sent) return
    flow.in_flight = true
    flow.recent.add(sent.bytes)
    lane.bytes += sent.bytes
    lane.flows += 1
    void sent.settled.then(() => {
      flow.in_flight = false
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
        serveLane(light)
        serveLane(bulk)
      }
    } finally {
      serving = false
    }
  }

  function enqueue(flow: Flow): void {
    if (flow.in_flight || light.waiting.has(flow) || bulk.waiting.has(flow)) return
    const lane = flow.recent.isLightWith(flow.backlog_bytes()) ? light : bulk
    lane.waiting.add(flow)
  }

  return {
    get ahead_bytes() {
      const share = aheadBytes / Math.max(1, bulk.flows + bulk.waiting.size)
      return Math.max(minAheadBytes, Math.min(maxAheadBytes, Math.floor(share)))
    },
    join(sending) {
      const flow: Flow = { ...sending, recent: createRecentBytes(), in_flight: false }
      return () => {
        enqueue(flow)
        serve()
      }
    },
  }
}
