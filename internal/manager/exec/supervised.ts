// The way into a container: its supervisor, waited for when the container has just started. It says why there is none
// instead of waiting in vain.
import { Fault } from '../../fault.ts'
import type { Relay } from '../../relay/relay.ts'
import type { SupervisorLink } from '../../relay/supervisor-side.ts'
import type { ContainerState, Runtime } from '../../runtime/runtime.ts'
import { type Pause, pausedFault } from '../container/pause.ts'

const connect_ms = 30_000
const look_ms = 1_000

export type SupervisorOf = (project_id: string, signal?: AbortSignal) => Promise<SupervisorLink>

const ended = (state: ContainerState | undefined): Fault =>
  new Fault(
    'unavailable',
    state
      ? `the container ended with exit code ${state.exit_code} before its supervisor connected`
      : 'the container was removed before its supervisor connected',
    {
      hint: 'container logs shows what it said; an image has to be able to run the supervisor, which needs the C library of Debian or another glibc',
    },
  )

export function createSupervised(deps: {
  relay: Relay
  runtime: Runtime
  paused: Pick<Pause, 'require'>
}): SupervisorOf {
  const { relay, runtime, paused } = deps

  /** Rejects when the container is found to be over: nobody would connect from it. */
  async function watch(project_id: string, signal: AbortSignal): Promise<never> {
    const { promise: over, reject } = Promise.withResolvers<never>()
    let looking = false
    let before: string | undefined
    const timer = setInterval(async () => {
      if (looking) return
      looking = true
      // An engine that does not answer says nothing about the container; the wait has an end of its own.
      const state = await runtime.inspect(project_id).catch(() => 'unknown' as const)
      looking = false
      if (state !== 'unknown' && state?.status === 'paused') reject(pausedFault())
      const over = state !== 'unknown' && (!state || ['exited', 'dead'].includes(state.status))
      const end = over ? (state?.finished_at ?? 'removed') : undefined
      // Seen twice: the reconciler, which brings containers back, had its chance.
      if (over && end === before) reject(ended(state))
      before = end
    }, look_ms)
    signal.addEventListener('abort', () => reject(signal.reason), { once: true })
    try {
      return await over
    } finally {
      clearInterval(timer)
    }
  }

  return async (project_id, signal) => {
    paused.require(project_id)
    const connected = relay.supervisor(project_id)
    if (connected) return connected
    const stop = new AbortController()
    const until = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal
    try {
      return await Promise.race([
        relay.waitForSupervisor(project_id, { timeout_ms: connect_ms, signal: until }),
        watch(project_id, until),
      ])
    } finally {
      stop.abort()
    }
  }
}
