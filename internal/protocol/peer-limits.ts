// Limits on what a peer may cost.
import { frameBytes } from './frames.ts'

export type PeerLimits = {
  frame_bytes: number
  /** Open requests of the peer. */
  open_requests: number
  /** Bytes of its open requests, and of sent data that it has not read; reading stops beyond this. */
  held_bytes: number
  /** Time to finish a frame, and to read sent data when too much is held. */
  slow_ms: number
}
export const defaults: PeerLimits = {
  frame_bytes: frameBytes,
  open_requests: 4096,
  held_bytes: 32 * 1024 * 1024,
  slow_ms: 30_000,
}

/** Load below this many bytes is not reported. */
export const loadReportBytes = 64 * 1024
