// Executes one run: sends its prompt to a session through the door, with the scope of the schedule, and reads the events of the
// session until the turn ends. Another server may repeat every step after a crash: the id of the run is the idempotency key.
import type { Caller } from '../../auth/caller.ts'
import { parseScope } from '../../auth/scope.ts'
import { Fault, type FaultShape } from '../../fault.ts'
import { newRequestId } from '../../ids.ts'
import { createKeyedQueue } from '../../lib/keyed-queue.ts'
import type { Log } from '../../log.ts'
import type { Store } from '../../store/open.ts'
import type { RunRow, RunStart } from '../../store/rows/schedule/runs.ts'
import {
  pinnedSession,
  pinSession,
  principalCounts,
  type ScheduleRow,
  scheduleById,
} from '../../store/rows/schedule/schedules.ts'
import { type Ending, endingOf } from './outcome.ts'

/** Calls the tool `session` through the door, which is above. */
export type ScheduledCall = (
  caller: Caller,
  args: Record<string, unknown>,
  more: { request_id: string; signal: AbortSignal },
) => Promise<{ structured: Record<string, unknown>; is_error: boolean }>

export type FollowSession = (
  session_id: string,
  since_index: number,
  signal: AbortSignal,
) => AsyncIterable<{ type: string; data: Record<string, unknown> }[]>

export type RunnerDeps = {
  store: Store
  now: () => number
  call: ScheduledCall
  follow: FollowSession
  /** Records that the run was started. */
  started: (start: RunStart) => Promise<void>
  log: Log
}

type Started = { session_id: string; turn_id: string; since_index: number }
type Refused = { refused: FaultShape }

const callerOf = (row: ScheduleRow): Caller => ({
  kind: 'schedule',
  id: row.id,
  name: row.name,
  scope: parseScope(row.scope),
  token_id: row.token_id,
  // Whether the token is still valid is checked before each run.
  expires_at: null,
})

export function createRunner(deps: RunnerDeps) {
  const { store, call, now } = deps
  const serial = createKeyedQueue()

  async function ask(
    row: ScheduleRow,
    args: Record<string, unknown>,
    signal: AbortSignal,
  ): Promise<Started | Refused> {
    const { structured, is_error } = await call(callerOf(row), args, { request_id: newRequestId(), signal })
    return is_error ? { refused: structured.error as FaultShape } : (structured as Started)
  }

  const spawn = (row: ScheduleRow, run: RunRow, signal: AbortSignal) =>
    ask(
      row,
      {
        action: 'spawn',
        project_id: run.project_id,
        ...(run.workspace_id === null ? {} : { workspace_id: run.workspace_id }),
        ...(run.droid === null ? {} : { droid: run.droid }),
        prompt: run.prompt,
        new_session: true,
        source: 'schedule',
        external_id: run.id,
        idempotency_key: run.id,
      },
      signal,
    )

  /** Sends the prompt to the session that the target keeps; spawns one for it to keep if there is none or it has ended. */
  async function resume(row: ScheduleRow, run: RunRow, signal: AbortSignal): Promise<Started | Refused> {
    const pinned = await pinnedSession(store.db, run.target_id)
    if (pinned !== null) {
      const message = { action: 'message', session_id: pinned, message: run.prompt, idempotency_key: run.id }
      const started = await ask(row, message, signal)
      const gone = 'refused' in started && ['conflict', 'not_found'].includes(started.refused.kind)
      if (!gone) return started
    }
    const started = await spawn(row, run, signal)
    if (!('refused' in started) && run.target_id !== null)
      await pinSession(store.db, run.target_id, started.session_id, pinned)
    return started
  }

  async function start(row: ScheduleRow, run: RunRow, signal: AbortSignal): Promise<Started | Refused> {
    const started_at = new Date(now()).toISOString()
    const started =
      run.session_behavior === 'new'
        ? await spawn(row, run, signal)
        : // Two runs at once would both find no session and spawn two.
          await serial(`${run.target_id}`, () => resume(row, run, signal))
    if ('refused' in started) {
      if (!signal.aborted)
        await deps.started({ id: run.id, started_at, session_id: null, turn_id: null, since_index: null })
      return started
    }
    const { session_id, turn_id, since_index } = started
    await deps.started({ id: run.id, started_at, session_id, turn_id, since_index })
    return { session_id, turn_id, since_index }
  }

  async function watch({ session_id, turn_id, since_index }: Started, signal: AbortSignal): Promise<Ending> {
    for await (const batch of deps.follow(session_id, since_index, signal))
      for (const event of batch) {
        const ending = endingOf(turn_id, event)
        if (ending) return ending
      }
    throw new Fault('timeout', 'the run was interrupted')
  }

  /** A session without further messages would count as active until its idle timeout. */
  async function endSession(row: ScheduleRow, session_id: string, signal: AbortSignal): Promise<void> {
    const ended = await ask(row, { action: 'end', session_id, wait_seconds: 0 }, signal)
    if ('refused' in ended && !signal.aborted)
      deps.log.warn('failed to end the session of a run', { session_id, reason: ended.refused.message })
  }

  /** Why a run that was claimed long ago may not start any more; undefined if it may. */
  async function refusal(row: ScheduleRow): Promise<string | undefined> {
    if (row.disabled_reason !== null) return row.disabled_reason
    const counts = await principalCounts(store.db, row, new Date(now()).toISOString())
    return counts
      ? undefined
      : `its token ${row.token_id} was revoked or has expired, or its session has ended`
  }

  /**
   * `known` is the schedule if it was read when the run was claimed. `begin` limits how many runs start at the same time.
   * Throws when it is aborted.
   */
  return async function execute(
    run: RunRow,
    known: ScheduleRow | undefined,
    signal: AbortSignal,
    begin: <T>(work: () => Promise<T>) => Promise<T>,
  ): Promise<Ending | undefined> {
    const row = known ?? (await begin(() => scheduleById(store.db, run.schedule_id)))
    if (!row) return undefined
    const { session_id, turn_id, since_index } = run
    let started: Started | Refused
    if (session_id !== null && turn_id !== null && since_index !== null)
      started = { session_id, turn_id, since_index }
    else {
      const refused = known ? undefined : await begin(() => refusal(row))
      if (refused)
        return { status: 'cancelled', output: null, error: `the schedule was disabled: ${refused}` }
      started = await begin(() => start(row, run, signal))
    }
    signal.throwIfAborted()
    if ('refused' in started) {
      const { message, hint } = started.refused
      return { status: 'failed', output: null, error: hint ? `${message} (${hint})` : message }
    }
    const ending = await watch(started, signal)
    if (run.session_behavior === 'new') await endSession(row, started.session_id, signal)
    return ending
  }
}
