// Finds the supervisor of a container and waits for it after a start. Fails with the reason if the container ended instead.
import { Fault } from '../../fault.ts'
import type { Relay } from '../../relay/relay.ts'
import type { SupervisorLink } from '../../relay/supervisor-side.ts'
import type { ContainerState, Runtime } from '../../runtime/runtime.ts'
import { type Pause, pausedFault } from '../container/pause.ts'

const connectMs = 30_000
const lookMs = 1_000

export type SupervisorOf = (project_id: string, signal?: AbortSignal) => Promise<SupervisorLink>

const ended = (state: ContainerState | undefined): Fault =>
  new Fault(
    'unavailable',
    state
      ? `the container ended with exit code ${state.exit_code} before its supervisor connected`
      : 'the container was removed before its supervisor connected',
    {
      hint: 'container logs shows its output; the image must be able to run the supervisor, which requires glibc (Debian, Ubuntu, Fedora)',
    },
  )

export function createSupervised(deps: {
  relay: Relay
  runtime: Runtime
  paused: Pick<Pause, 'requireNotPaused'>
}): SupervisorOf {
  const { relay, runtime, paused } = deps

  /** Rejects when the container has ended: no supervisor will connect from it. */
  async function watch(project_id: string, signal: AbortSignal): Promise<never> {
    const { promise: over, reject } = Promise.withResolvers<never>()
    let looking = false
    let before: string | undefined
    const timer = setInterval(async () => {
      if (looking) return
      looking = true
      // If the engine does not answer, the state is unknown; the wait has its own deadline.
      const state = await runtime.inspect(project_id).catch(() => 'unknown' as const)
      looking = false
      if (state !== 'unknown' && state?.status === 'paused') reject(pausedFault())
      const over = state !== 'unknown' && (!state || ['exited', 'dead'].includes(state.status))
      const end = over ? (state?.finished_at ?? 'removed') : undefined
      // Seen twice: the reconciler had time to restart the container.
      if (over && end === before) reject(ended(state))
      before = end
    }, lookMs)
    signal.addEventListener('abort', () => reject(signal.reason), { once: true })
    try {
      return await over
    } finally {
      clearInterval(timer)
    }
  }

  return async (project_id, signal) => {
    paused.requireNotPaused(project_id)
    const connected = relay.supervisor(project_id)
    if (connected) return connected
    const stop = new AbortController()
    const until = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal
    try {
      return await Promise.race([
        relay.waitForSupervisor(project_id, { timeout_ms: connectMs, signal: until }),
        watch(project_id, until),
      ])
    } finally {
      stop.abort()
    }
  }
}
