// The droid without a model: each prompt is a bash script that runs in the workspace. Its output becomes events as it appears,
// its exit ends the turn, and its background processes run until the session ends or the turn is cancelled.
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { constants } from 'node:os'
import { join } from 'node:path'
import { lockLimit, lockLimitLines } from '../lib/process/lock-limit.ts'
import { endProcesses } from '../lib/process/processes.ts'
import { createCoalescer } from './coalesce.ts'
import { drained, readText } from './command/output-reader.ts'
import type { Droid, DroidTurn, Sink, TurnEnd } from './droid.ts'
import { outOfMemory } from './process/out-of-memory.ts'
import { type PipeMaker, spawnPiped } from './process/pipes.ts'

export type ShellOptions = {
  session_id: string
  workspace_dir: string
  env: Record<string, string>
  /** For the scripts; outside the workspace, so that a script does not see its own file. */
  scratch_dir: string
  pipes: PipeMaker
  sink: Sink
}

const finalChars = 16 * 1024
const quietMs = 150
/** Exit code of a script that was killed, or whose last command was killed. */
const killedCode = 128 + constants.signals.SIGKILL

async function started(child: ChildProcess): Promise<void> {
  if (child.pid === undefined) await once(child, 'spawn')
}

export function startShell(options: ShellOptions): Droid {
  const { sink, pipes } = options
  const session_mark = `OUBLIETTE_SESSION_ID=${options.session_id}`
  let running: { turn_id: string; cancelled: boolean; over: Promise<unknown> } | undefined

  async function run(turn: DroidTurn, state: { cancelled: boolean }): Promise<TurnEnd> {
    const script = join(options.scratch_dir, `${turn.turn_id.replaceAll(/[^\w-]/g, '_')}.sh`)
    // A file, because an argument is limited to 128 KiB and the script's commands use stdin.
    mkdirSync(options.scratch_dir, { recursive: true, mode: 0o700 })
    writeFileSync(script, turn.text, { mode: 0o600 })
    const limit = lockLimit(session_mark, `OUBLIETTE_TURN_ID=${turn.turn_id}`)
    const before = `${script}.before`
    writeFileSync(before, lockLimitLines(limit, options.env.BASH_ENV), { mode: 0o600 })
    try {
      return await execute(script, before, turn, state)
    } finally {
      rmSync(script, { force: true })
      rmSync(before, { force: true })
    }
  }

  async function execute(
    script: string,
    before: string,
    turn: DroidTurn,
    state: { cancelled: boolean },
  ): Promise<TurnEnd> {
    const spawned = await spawnPiped(pipes, ['bash', script], {
      cwd: options.workspace_dir,
      env: { ...options.env, OUBLIETTE_TURN_ID: turn.turn_id, BASH_ENV: before },
      stdin: 'ignore',
      // A cancel before the spawn finds no process to end.
      still: () => !state.cancelled,
    })
    if (!spawned) return { stop_reason: 'cancelled', final_text: '' }
    const { child } = spawned
    const exited = new Promise<[number | null, NodeJS.Signals | null]>((resolve) => {
      child.once('exit', (code, signal) => resolve([code, signal]))
    })
    const coalescer = createCoalescer((event) => sink.emit(event))
    let tail = ''
    const reading = (stream: 'stdout' | 'stderr') =>
      readText(spawned[stream], sink, (text) => {
        if (stream === 'stdout' && text !== '') tail = (tail + text).slice(-finalChars)
        coalescer.push(stream, { type: 'delta', turn_id: turn.turn_id, stream }, text)
      })
    const readings = [reading('stdout'), reading('stderr')]
    await started(child)
    const [code, signal] = await exited
    await drained(readings, quietMs)
    coalescer.flush()
    const final_text = tail.toWellFormed()
    if (state.cancelled) return { stop_reason: 'cancelled', final_text }
    const exit_code = code ?? 128 + (signal ? constants.signals[signal] : 0)
    if (exit_code === 0) return { stop_reason: 'end_turn', final_text, exit_code }
    const how = signal
      ? `the script was killed by ${signal}`
      : `the script failed with exit code ${exit_code}`
    const out_of_memory = exit_code === killedCode ? outOfMemory() : undefined
    if (!out_of_memory) return { stop_reason: 'error', final_text, exit_code, error: how }
    return { stop_reason: 'error', final_text, exit_code, error: `${out_of_memory}: ${how}`, out_of_memory }
  }

  return {
    ready: Promise.resolve({ agent_session_id: null, resumed: false, resumable: false }),
    // There is no process between turns.
    gone: new Promise(() => {}),
    async turn(turn) {
      const state = { turn_id: turn.turn_id, cancelled: false, over: Promise.resolve() as Promise<unknown> }
      const ended = run(turn, state).catch(
        (error: Error): TurnEnd => ({ stop_reason: 'error', final_text: '', error: error.message }),
      )
      state.over = ended
      running = state
      const end = await ended
      running = undefined
      return end
    },
    async cancel(grace_ms) {
      const turn = running
      if (!turn) return
      turn.cancelled = true
      await endProcesses(`OUBLIETTE_TURN_ID=${turn.turn_id}`, undefined, grace_ms)
      await turn.over
    },
    answer: () => false,
    async end(grace_ms) {
      if (running) running.cancelled = true
      await endProcesses(session_mark, undefined, grace_ms)
      await running?.over
    },
  }
}
