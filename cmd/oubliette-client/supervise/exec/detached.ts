// Detached commands. The supervisor owns them: it enforces their deadline and keeps their output and outcome until the server
// has committed the outcome. They continue while the server is disconnected; commands that the server does not know are killed.
//
//   running ─▶ exited | timed_out | killed ─▶ settled (the server knows)
//   running ─▶ lost (the container was restarted)
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { checkCommand, launch, type RunningCommand } from '../../../../internal/droid/command/command.ts'
import { Fault, messageOf } from '../../../../internal/fault.ts'
import type {
  ExecEnding,
  ExecKill,
  ExecStart,
  ExecsSettled,
  ExecWait,
  HelloAnswer,
} from '../../../../internal/protocol/messages.ts'
import type { Peer } from '../../../../internal/protocol/peer.ts'
import type { Environment } from '../../environment.ts'
import { withGit } from '../git.ts'
import { type ExecRecord, openExecStore } from './store.ts'

type Output = ReturnType<ReturnType<typeof openExecStore>['openOutput']>
type Entry = {
  record: ExecRecord
  running?: Promise<RunningCommand | undefined>
  output?: Output
  written: { stdout: number; stderr: number }
  /** A kill was requested; a command that is not launched yet is not launched any more. */
  killed: boolean
  dropped: boolean
  waiting: Set<() => void>
}

const endingsPerRequest = 500
const maxPauseMs = 5000
/** Output that arrives within this time is answered together. */
const gatherMs = 50

export function openDetached(environment: Environment, default_dir: string) {
  const { log } = environment
  const store = openExecStore(join(environment.state_dir, 'execs'), log)
  const entries = new Map<string, Entry>()
  let peer: Peer | undefined
  let reporting = false

  const isRunning = ({ record }: Entry) => record.ending === null
  const entryOf = (record: ExecRecord): Entry => ({
    record,
    written: { stdout: 0, stderr: 0 },
    killed: false,
    dropped: false,
    waiting: new Set(),
  })
  const wake = ({ waiting }: Entry) => {
    for (const go of waiting) go()
  }

  for (const record of store.load()) {
    if (!record.ending) {
      record.ending = {
        exec_id: record.exec_id,
        status: 'lost',
        exit_code: null,
        reason: 'the container was restarted',
        ended_at: new Date().toISOString(),
        stdout_bytes: store.bytesOf(record.exec_id, 'stdout'),
        stderr_bytes: store.bytesOf(record.exec_id, 'stderr'),
      }
      store.save(record)
    }
    entries.set(record.exec_id, entryOf(record))
  }

  const unsettled = (): ExecEnding[] =>
    [...entries.values()]
      .filter(({ record }) => record.ending !== null && !record.settled)
      .slice(0, endingsPerRequest)
      .map(({ record }) => record.ending!)

  function settle(ids: string[]): void {
    for (const exec_id of ids) {
      const entry = entries.get(exec_id)
      if (!entry || isRunning(entry)) continue
      entry.record.settled = true
      store.save(entry.record)
    }
  }

  /** Reports endings until the server has committed all of them or the connection ends; the next hello continues. */
  async function reportEndings(): Promise<void> {
    if (reporting) return
    reporting = true
    try {
      for (let failures = 0; peer?.open; ) {
        const execs = unsettled()
        if (execs.length === 0) return
        try {
          settle(
            ((await peer.request('execs_ended', { execs }, { timeout_ms: 30_000 })) as ExecsSettled).settled,
          )
          failures = 0
        } catch (error) {
          if (peer?.open) log.warn('failed to report ended commands', { reason: messageOf(error) })
          await delay(Math.min(100 * 2 ** failures++, maxPauseMs))
        }
      }
    } finally {
      reporting = false
    }
  }

  function drop(entry: Entry): void {
    entry.dropped = true
    entry.output?.close()
    entries.delete(entry.record.exec_id)
    store.remove(entry.record.exec_id)
    wake(entry)
  }
  /** Oldest first. Endings that the server has not committed are kept; their number is bounded by that of running commands. */
  const removable = () => [...entries.values()].filter(({ record }) => record.settled)
  function prune(most_kept: number): void {
    const over = removable()
    for (const entry of over.slice(0, Math.max(0, over.length - most_kept))) drop(entry)
  }
  function makeRoom(bytes: number): void {
    let missing = bytes
    for (const entry of removable()) {
      if (missing <= 0) return
      missing -= store.sizeOf(entry.record.exec_id)
      drop(entry)
    }
  }

  function finish(
    entry: Entry,
    end: Pick<ExecEnding, 'status' | 'exit_code' | 'reason'>,
    failure = '',
  ): void {
    if (entry.dropped) return
    if (failure !== '') append(entry, 'stderr', Buffer.from(failure))
    entry.output?.close()
    delete entry.running
    entry.record.ending = {
      exec_id: entry.record.exec_id,
      ...end,
      ended_at: new Date().toISOString(),
      stdout_bytes: entry.written.stdout,
      stderr_bytes: entry.written.stderr,
    }
    store.save(entry.record)
    wake(entry)
    void reportEndings()
  }
  function append(entry: Entry, stream: 'stdout' | 'stderr', chunk: Buffer): void {
    if (entry.dropped || !isRunning(entry)) return
    entry.written[stream] += chunk.length
    entry.output?.write(stream, chunk)
    wake(entry)
  }

  async function run(entry: Entry, { git_key, ...request }: ExecStart): Promise<void> {
    const env = withGit({ ...environment.env, ...request.env }, environment, git_key)
    const place = { ...environment, default_dir }
    entry.running = launch(
      request.exec_id,
      { ...request, env },
      place,
      (stream, chunk) => append(entry, stream, chunk),
      () => !entry.killed,
    )
    try {
      const running = await entry.running
      if (!running) return finish(entry, { status: 'killed', exit_code: null, reason: null })
      const { exit_code, signal, timed_out, failure } = await running.ended
      const status = timed_out ? 'timed_out' : entry.killed && signal !== null ? 'killed' : 'exited'
      finish(entry, { status, exit_code, reason: null }, failure)
    } catch (error) {
      finish(entry, { status: 'exited', exit_code: 126, reason: messageOf(error).slice(0, 500) })
    }
  }

  async function kill(entry: Entry): Promise<void> {
    entry.killed = true
    await (await entry.running?.catch(() => undefined))?.kill()
  }

  return {
    /** For the hello. */
    state: () => ({
      running: [...entries.values()].filter(isRunning).map(({ record }) => record.exec_id),
      ended: unsettled(),
    }),
    connected(to: Peer, answer: HelloAnswer): void {
      peer = to
      settle(answer.settled_execs ?? [])
      for (const exec_id of answer.unknown_execs ?? []) {
        const entry = entries.get(exec_id)
        if (!entry) continue
        log.warn('killing a detached command that the server does not know', { exec_id })
        void kill(entry).then(() => drop(entry))
      }
      void reportEndings()
    },
    start(command: ExecStart) {
      if (entries.has(command.exec_id)) return { accepted: true }
      checkCommand(command, default_dir)
      const running = [...entries.values()].filter(isRunning).length
      if (running >= command.most_running)
        throw new Fault('exhausted', `this container already runs ${running} detached commands`, {
          hint: 'wait until one ends, or end one with exec_kill',
        })
      prune(command.most_kept)
      const entry = entryOf({ exec_id: command.exec_id, ending: null, settled: false })
      entries.set(command.exec_id, entry)
      store.save(entry.record)
      entry.output = store.openOutput(command.exec_id, command.output_bytes, command.total_bytes, makeRoom)
      void run(entry, command)
      return { accepted: true }
    },
    async wait({ exec_id, stdout_offset, stderr_offset, wait_ms }: ExecWait, signal: AbortSignal) {
      const entry = entries.get(exec_id)
      const { kept } = entry?.output ?? {}
      const has = () => !kept || kept.stdout > stdout_offset || kept.stderr > stderr_offset
      if (!entry || !isRunning(entry) || has()) return { accepted: true }
      const { promise, resolve } = Promise.withResolvers<void>()
      let gathering: NodeJS.Timeout | undefined
      const look = () => {
        if (entry.dropped || !isRunning(entry)) resolve()
        else if (has()) gathering ??= setTimeout(resolve, gatherMs)
      }
      const timer = setTimeout(resolve, wait_ms)
      const onAbort = () => resolve()
      entry.waiting.add(look)
      signal.addEventListener('abort', onAbort, { once: true })
      await promise
      clearTimeout(timer)
      clearTimeout(gathering)
      entry.waiting.delete(look)
      signal.removeEventListener('abort', onAbort)
      return { accepted: true }
    },
    async kill({ exec_id, signal }: ExecKill) {
      const entry = entries.get(exec_id)
      if (entry && isRunning(entry)) {
        if (signal === 'SIGKILL') await kill(entry)
        else {
          const running = await entry.running
          entry.killed = true
          running?.signal(signal)
        }
      }
      return { accepted: true }
    },
  }
}
