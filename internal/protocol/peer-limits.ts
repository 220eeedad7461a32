// What the other side of a connection may cost us.
import { frameBytes } from './frames.ts'

export type PeerLimits = {
  frame_bytes: number
  /** Requests of the other side that may be open at once. */
  open_requests: number
  /** Of its open requests, and likewise of what we wrote and it did not read; beyond this we stop reading. */
  held_bytes: number
  /** To finish a frame that has begun, and to take what was written when too much is held. */
  slow_ms: number
}
export const defaults: PeerLimits = {
  frame_bytes: frameBytes,
  open_requests: 4096,
  held_bytes: 32 * 1024 * 1024,
  slow_ms: 30_000,
}

/** Bytes; below this a connection weighs nothing. */
export const worthLooking = 64 * 1024
