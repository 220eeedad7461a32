// Detached commands: one call starts them, others read their output or end them. The row is written first, then the supervisor
// starts the command; it owns the command from then on and reports its end, which is committed once. If the server is killed
// at any point, the command continues and its row gets its end later, or the command was never started and its row becomes
// `lost` when the supervisor reconnects.
import type { Caller } from '../../auth/caller.ts'
import type { Config } from '../../config/load.ts'
import { Fault } from '../../fault.ts'
import { services } from '../../git/remote.ts'
import { newExecId } from '../../ids.ts'
import type { ExecKill, ExecRequest, ExecStart } from '../../protocol/messages.ts'
import type { Relay } from '../../relay/relay.ts'
import type { Store } from '../../store/open.ts'
import * as rows from '../../store/rows/execs.ts'
import type { Wake } from '../events/wake.ts'
import type { GitUse } from '../project/git-use.ts'
import type { Attached, ExecHooks } from './attached.ts'
import type { ReadOutput } from './output.ts'
import { type ExecRecords, execWakeKey, shownExec } from './records.ts'
import type { SupervisorOf } from './supervised.ts'

type Deps = {
  store: Store
  config: Config
  records: ExecRecords
  relay: Relay
  supervisorOf: SupervisorOf
  attached: Pick<Attached, 'ensure' | 'requireOwnUser'>
  git: Pick<GitUse, 'issue'>
  wake: Wake
  readOutput: ReadOutput
}

const mostCharacters = 4000
const startAttempts = 3
const startMs = 10_000
const killMs = 10_000
/** Calls that may wait for output of one container; further calls return at once. */
const mostWaiting = 256
const mebibyte = 1024 * 1024

const isUnreachable = (error: unknown) =>
  error instanceof Fault && (error.kind === 'unavailable' || error.kind === 'timeout')

export function createDetached(deps: Deps) {
  const { store, config, relay, wake, records } = deps
  const { db } = store
  const waiting = new Map<string, number>()

  /** Repeated on the next connection if one is lost: the supervisor starts each id once. */
  async function startInContainer(command: ExecStart, project_id: string, hooks: ExecHooks): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      const link = await deps.supervisorOf(project_id, hooks.signal)
      // A connection that was made after the row was written has marked it `lost` if it was never started.
      const { status, reason } = await records.require(command.exec_id)
      if (status === 'lost')
        throw new Fault('conflict', `the command was not started: ${reason}`, { hint: 'call again' })
      if (status !== 'running') return
      try {
        return void (await link.send('exec_start', command, { timeout_ms: startMs }))
      } catch (error) {
        const lost_connection = error instanceof Fault && error.kind === 'unavailable'
        if (!lost_connection || attempt === startAttempts) throw error
      }
    }
  }

  async function start(
    caller: Pick<Caller, 'id' | 'token_id' | 'session_id'>,
    project_id: string,
    user: string | undefined,
    request: Omit<ExecRequest, 'output_bytes'>,
    hooks: ExecHooks,
  ) {
    const link = await deps.attached.ensure(project_id, hooks)
    await deps.attached.requireOwnUser(link, user, hooks)
    const exec_id = newExecId()
    const started = Date.now()
    const { running, kept, output_mb, total_mb } = config.execs
    await rows.insertExec(
      store,
      {
        id: exec_id,
        project_id,
        boot_id: link.boot_id,
        command: request.command.join(' ').slice(0, mostCharacters).toWellFormed(),
        working_dir: request.working_dir ?? null,
        created_by: caller.id,
        token_id: caller.token_id,
        session_id: caller.session_id ?? null,
        started_at: new Date(started).toISOString(),
        deadline_at: new Date(started + request.timeout_seconds * 1000).toISOString(),
      },
      { running, kept },
    )
    const issued = deps.git.issue(project_id, services)
    records.holdGitKey(exec_id, issued)
    const command: ExecStart = {
      ...request,
      exec_id,
      git_key: issued.key,
      output_bytes: Math.floor(output_mb * mebibyte),
      most_running: running,
      most_kept: kept,
      total_bytes: Math.floor(total_mb * mebibyte),
    }
    try {
      await startInContainer(command, project_id, hooks)
    } catch (error) {
      if (isUnreachable(error))
        throw new Fault('unavailable', `it is unknown whether ${exec_id} was started`, {
          hint: `exec_status of ${exec_id} shows it when the container responds`,
          cause: error,
        })
      // The supervisor refused it, or the caller disconnected before it was sent.
      records.release([exec_id])
      await rows.deleteExec(db, exec_id)
      throw error
    }
    return { exec_id }
  }

  async function waitForOutput(
    { id, project_id }: rows.ExecRow,
    offsets: { stdout: number; stderr: number },
    wait_seconds: number,
    signal: AbortSignal,
  ): Promise<void> {
    const under = waiting.get(project_id) ?? 0
    const link = relay.supervisor(project_id)
    if (!link || under >= mostWaiting) return
    waiting.set(project_id, under + 1)
    const seen = wake.seen(execWakeKey(id))
    const given_up = new AbortController()
    const until = AbortSignal.any([signal, given_up.signal])
    const wait_ms = wait_seconds * 1000
    const params = { exec_id: id, stdout_offset: offsets.stdout, stderr_offset: offsets.stderr, wait_ms }
    try {
      // Also wait for the row: the supervisor may have reported the end in between.
      await Promise.race([
        link.send('exec_wait', params, { signal: until }).catch((error: unknown) => {
          if (!isUnreachable(error) && !until.aborted) throw error
        }),
        wake.news(execWakeKey(id), seen, { signal: until, timeout_ms: wait_ms }),
      ])
    } finally {
      given_up.abort()
      const left = waiting.get(project_id)! - 1
      if (left > 0) waiting.set(project_id, left)
      else waiting.delete(project_id)
    }
  }

  async function output(
    exec_id: string,
    page: { cursor?: string; max_bytes: number; wait_seconds: number; signal: AbortSignal },
  ) {
    let row = await records.require(exec_id)
    const offsets = deps.readOutput.offsetsOf(page.cursor)
    // The row is read before the files, here and below: a command that has ended by its row has all its output on disk.
    let read = await deps.readOutput.read(row, offsets, page.max_bytes)
    const nothing = read.stdout === '' && read.stderr === ''
    if (nothing && row.status === 'running' && page.wait_seconds > 0) {
      await waitForOutput(row, offsets, page.wait_seconds, page.signal)
      row = await records.require(exec_id)
      read = await deps.readOutput.read(row, offsets, page.max_bytes)
    }
    return { exec_id, status: row.status, exit_code: row.exit_code, ...read }
  }

  async function kill(exec_id: string, signal: ExecKill['signal'], until: AbortSignal) {
    const row = await records.require(exec_id)
    if (row.status !== 'running') return shownExec(row)
    const seen = wake.seen(execWakeKey(exec_id))
    const link = await deps.supervisorOf(row.project_id, until)
    await link.send('exec_kill', { exec_id, signal })
    // A command may ignore other signals: return at once.
    if (signal === 'SIGKILL')
      await wake.news(execWakeKey(exec_id), seen, { signal: until, timeout_ms: killMs })
    return shownExec(await records.require(exec_id))
  }

  return {
    start,
    output,
    kill,
    status: records.status,
    list: records.list,
    projectOf: records.projectOf,
  }
}
