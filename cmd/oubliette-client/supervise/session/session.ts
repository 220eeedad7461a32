// One session in the supervisor: its droid, its queue of turns and its journal.
//
//   start ─▶ running ⇄ idle ─▶ completed | failed | cancelled ─▶ start (resume) …
//              ⇅           └─▶ hibernated ─▶ start (resume) …
//            waiting (for the answer to a permission request)
import { join } from 'node:path'
import type { Droid, DroidEvent, Sink, TurnEnd } from '../../../../internal/droid/droid.ts'
import { Fault, messageOf } from '../../../../internal/fault.ts'
import type * as protocol from '../../../../internal/protocol/messages.ts'
import type { FinalStatus } from '../../../../internal/protocol/session-status.ts'
import { restartedReason } from '../../../../internal/protocol/wire.ts'
import { openCommandLog } from '../../../../internal/supervisor/command-log.ts'
import { openJournal } from '../../../../internal/supervisor/journal.ts'
import type { Environment } from '../../environment.ts'
import { placeAttachments } from './attachments.ts'
import { createBacklog } from './backlog.ts'
import { loadRecord, readOutcomes, saveRecord } from './record.ts'
import { createSender } from './sender.ts'
import { startDroid } from './start-droid.ts'

export type Session = ReturnType<typeof openSession>

const graceMs = 5000
const counts = new Set(['usage', 'completion'])

export function openSession(
  session_id: string,
  environment: Environment,
  on_unknown: (session: { drop(): Promise<void> }) => void,
) {
  const directory = join(environment.journal_dir, session_id)
  let roomy = Promise.withResolvers<void>()
  const journal = openJournal({
    directory,
    limit_bytes: environment.journal_limit_bytes,
    on_append: () => sender.kick(),
    on_room: () => resumeIfRoom(),
    on_error: (error) => environment.log.warn('failed to write the journal', { session_id, error }),
  })
  const sender = createSender({
    session_id,
    journal,
    share: environment.share,
    log: environment.log,
    on_unknown: () => on_unknown({ drop }),
    on_committed: () => {
      if (!record.live && sender.all_committed) journal.settle()
      resumeIfRoom()
    },
    on_disconnected: () => resumeIfRoom(),
  })
  /** A droid that prints faster than the server commits is not read until the backlog shrinks. */
  const isCongested = () =>
    journal.full || (sender.connected && journal.backlog_bytes >= environment.share.ahead_bytes)
  const wakeReaders = () => {
    roomy.resolve()
    roomy = Promise.withResolvers()
  }
  const resumeIfRoom = () => {
    if (!isCongested()) wakeReaders()
  }
  const done = openCommandLog(join(directory, 'commands.jsonl'))
  const record = loadRecord(directory, session_id)
  const requires = new Set<string>()
  let droid: Droid | undefined
  let workspace_dir = ''
  let metered = false
  let queue: protocol.Turn[] = []
  let current: string | undefined
  let loop: Promise<void> = Promise.resolve()
  let looping = false
  /** Settles when the previous droid has ended; a new one must not start before. */
  let closing: Promise<void> = Promise.resolve()
  let dropped = false
  /** Added to the first status event after the start. */
  let opening: Record<string, unknown> = {}
  let resumable = false
  /** Added to every status event until the droid ends. */
  let remark: string | undefined

  const backlog = createBacklog(journal, sender)
  const emit = (event: DroidEvent) => {
    if (dropped || !backlog.accepts(event)) return
    // The model proxy meters its own requests; the agent's figures for them are informational.
    journal.append(metered && counts.has(event.type) ? { ...event, metered: true } : event)
  }
  const save = () => {
    if (dropped) return
    journal.flush()
    try {
      saveRecord(directory, record)
    } catch (error) {
      // Disk full. The next save writes the whole record; until then a restart loses part of the state.
      environment.log.warn('failed to write the record of a session', { session_id, error })
    }
  }
  const setStatus = (status: string, more: Record<string, unknown> = {}) => {
    record.status = status
    const reason = remark === undefined ? {} : { reason: remark }
    emit({ type: 'status', status, ...(current ? { turn_id: current } : {}), ...reason, ...opening, ...more })
    opening = {}
  }
  const complete = (turn_id: string, end: Record<string, unknown>) => {
    emit({ type: 'completion', turn_id, ...end })
    record.open_turns = record.open_turns.filter((it) => it !== turn_id)
  }
  /** Every accepted turn gets its completion before the session gets its final status. */
  const finish = (status: FinalStatus, more: Record<string, unknown>) => {
    record.live = false
    droid = undefined
    queue = []
    for (const turn_id of record.open_turns) complete(turn_id, { final_text: '', stop_reason: 'not_run' })
    requires.clear()
    const discarded = backlog.takeDiscarded()
    if (discarded) emit(discarded)
    setStatus(status, more)
    save()
    backlog.reset()
  }

  const sink: Sink = {
    emit(event) {
      emit(event)
      if (event.type !== 'permission_request') return
      requires.add(String(event.request_id))
      setStatus('waiting', { requires: [...requires] })
    },
    answered(request_id) {
      if (!requires.delete(request_id) || !record.live) return
      if (requires.size > 0) setStatus('waiting', { requires: [...requires] })
      else setStatus('running')
    },
    room: () => (isCongested() && !dropped && !backlog.ending ? roomy.promise : undefined),
  }

  async function runTurns(by: Droid): Promise<void> {
    for (let turn = queue.shift(); turn && droid === by && record.live; turn = queue.shift()) {
      current = turn.turn_id
      backlog.reset()
      setStatus('running')
      // Flushed now: starting the process blocks the event loop, and its first output would queue behind this event.
      journal.flush()
      let end: TurnEnd
      try {
        end = await by.turn({ ...turn, files: placeAttachments(turn, workspace_dir) })
      } catch (error) {
        end = { final_text: '', stop_reason: 'error', error: messageOf(error) }
      }
      const { out_of_memory, ...completion } = end
      complete(turn.turn_id, completion)
      current = undefined
      if (queue.length === 0 && droid === by && record.live)
        setStatus('idle', out_of_memory === undefined ? {} : { reason: out_of_memory })
      save()
    }
  }
  const run = () => {
    if (looping || !droid || !record.live || queue.length === 0) return
    looping = true
    loop = runTurns(droid).finally(() => {
      looping = false
      // A turn may have been queued after the loop's last check.
      run()
    })
  }

  const accept = (turn: protocol.Turn) => {
    queue.push(turn)
    record.open_turns.push(turn.turn_id)
  }

  const close = (ended: Droid, grace_ms: number, onEnded: () => void) => {
    record.live = false
    closing = ended
      .end(grace_ms)
      .then(() => loop)
      .then(() => {
        if (!dropped) onEnded()
      })
  }

  async function drop(): Promise<void> {
    record.live = false
    dropped = true
    sender.stop()
    queue = []
    // Readers must not wait for room any more.
    wakeReaders()
    await droid?.end(0)
    journal.remove()
  }

  const commands = {
    async start_session(command: protocol.StartSession) {
      await closing
      if (record.live) throw new Fault('conflict', `session ${session_id} is already running`)
      journal.skipTo(command.next_seq ?? 0)
      workspace_dir = command.workspace_dir
      remark = undefined
      metered = command.provider !== undefined
      const made = startDroid(command, environment, sink)
      Object.assign(record, { live: true, status: 'starting', agent_session_id: null, open_turns: [] })
      if (command.turn) accept(command.turn)
      droid = made
      save()
      const failed = (why: string, more: Record<string, unknown> = {}) => {
        if (droid !== made || !record.live) return
        close(made, 0, () => {
          emit({ type: 'error', message: why, ...more })
          finish('failed', { reason: why, ...more })
        })
      }
      void made.gone.then(({ reason, ...more }) => failed(reason, more))
      void made.ready.then(
        ({ agent_session_id, ...how }) => {
          if (droid !== made || !record.live) return
          record.agent_session_id = agent_session_id
          resumable = how.resumable
          if (how.why_not_resumed !== undefined)
            remark = `failed to resume the conversation: ${how.why_not_resumed}`
          opening = agent_session_id === null ? {} : { agent_session_id, ...how }
          if (queue.length === 0) setStatus('idle')
          save()
          run()
        },
        (error) => failed(messageOf(error)),
      )
    },
    async prompt({ turn_id, text, attachments }: protocol.PromptCommand) {
      if (!record.live)
        throw new Fault('conflict', `session ${session_id} has no running droid`, {
          hint: 'resume the session',
        })
      accept({ turn_id, text, ...(attachments ? { attachments } : {}) })
      save()
      if (record.status !== 'starting') run()
    },
    async cancel({ turn_id, grace_seconds }: protocol.CancelCommand) {
      const target = turn_id ?? current ?? queue[0]?.turn_id
      if (target !== current) {
        if (target === undefined || !queue.some((turn) => turn.turn_id === target)) return
        queue = queue.filter((turn) => turn.turn_id !== target)
        complete(target, { final_text: '', stop_reason: 'cancelled' })
        return save()
      }
      backlog.interrupt()
      // Not awaited: the completion event reports how the turn ended.
      void droid?.cancel(grace_seconds === undefined ? graceMs : grace_seconds * 1000)
    },
    async end({ status = 'completed', reason, grace_seconds }: protocol.EndCommand) {
      if (record.live && droid) {
        if (current) backlog.interrupt()
        backlog.end()
        // Further output is read and, beyond the bound, discarded.
        wakeReaders()
        close(droid, grace_seconds === undefined ? graceMs : grace_seconds * 1000, () =>
          finish(status, reason === undefined ? {} : { reason }),
        )
      }
      await closing
    },
    async hibernate() {
      if (!record.live || !droid) return
      const busy = record.status !== 'idle' || looping || queue.length > 0 || requires.size > 0
      if (busy || !resumable)
        throw new Fault(
          'conflict',
          `session ${session_id} ${busy ? 'has a running or queued turn' : 'cannot be resumed'}`,
        )
      record.live = false
      closing = droid.end(graceMs)
      await closing
      droid = undefined
      save()
      // Otherwise the next commit settles it.
      if (sender.all_committed) journal.settle()
    },
    async permission_answer({ request_id, outcome }: protocol.PermissionAnswer) {
      if (!droid?.answer(request_id, outcome))
        throw new Fault('not_found', `permission request ${request_id} is not open`)
    },
  }

  return {
    session_id,
    sender,
    drop,
    /** After a restart of the container: a session that was live has failed, which is reported once. */
    recover() {
      const past = readOutcomes(journal)
      record.open_turns = record.open_turns.filter((it) => !past.ended_turns.has(it))
      if (record.live && !past.over) {
        for (const turn_id of [...record.open_turns])
          complete(turn_id, { final_text: '', stop_reason: 'error', error: 'the container was restarted' })
        finish('failed', { reason: restartedReason, agent_session_id: record.agent_session_id })
      }
      record.live = false
      saveRecord(directory, record)
    },
    execute: (name: keyof typeof commands, params: { command_id: string }) =>
      done.run(params.command_id, async () => {
        await commands[name](params as never)
        return { accepted: true }
      }),
    state: (): protocol.SessionState => ({
      session_id,
      status: record.status as protocol.SessionState['status'],
      live: record.live,
      last_seq: journal.next_seq - 1,
      agent_session_id: record.agent_session_id,
      turn_id: current ?? null,
      queued_turn_ids: queue.map((turn) => turn.turn_id),
    }),
    /** No running droid and nothing left to send. */
    get quiet() {
      return !record.live && journal.empty
    },
    get acked_seq() {
      return journal.acked_seq
    },
    end: (grace_ms: number) => droid?.end(grace_ms),
  }
}
