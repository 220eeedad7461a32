// Whether a supervisor that is connected still answers. A process that is stopped or hangs keeps its connection, and whoever
// waits for it would wait for ever. Missed beats are counted instead of time: after a stall of this process the clock says
// that nobody answered, although nobody has looked yet.
import { Fault } from '../fault.ts'
import type { SupervisorLink } from './supervisor-side.ts'

const intervalMs = 5_000
const mostMissed = 3

/** Ends the connection after so many beats without a sign of life; anything that the supervisor says is one. */
export function watchHeartbeat(
  { peer, send }: Pick<SupervisorLink, 'peer' | 'send'>,
  options: {
    interval_ms?: number
    /** Whether its silence is somebody's wish: the container is paused. */
    paused: () => boolean
    on_given_up: () => void
  },
): void {
  const { interval_ms = intervalMs } = options
  let missed = 0
  const timer = setInterval(() => {
    missed = peer.wasSilent() && !options.paused() ? missed + 1 : 0
    if (missed >= mostMissed) {
      options.on_given_up()
      return peer.close(new Fault('timeout', 'the supervisor of the container does not answer'))
    }
    // Whether it is answered shows at the next beat.
    send('ping', {}, { timeout_ms: interval_ms * mostMissed }).catch(() => undefined)
  }, interval_ms).unref()
  void peer.closed.then(() => clearInterval(timer))
}
