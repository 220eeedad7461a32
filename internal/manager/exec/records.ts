// The rows of detached commands: what supervisors report about commands is compared with them and committed here.
import { unknown } from '../../fault.ts'
import type { IssuedKey } from '../../git/keys.ts'
import type { Log } from '../../log.ts'
import type { ExecEnding, SupervisorHello } from '../../protocol/messages.ts'
import type { Store } from '../../store/open.ts'
import * as rows from '../../store/rows/execs.ts'
import type { PageRequest } from '../../store/rows/page.ts'
import type { Wake } from '../events/wake.ts'
import { requireProject } from '../project/require.ts'

/** Time after its deadline for the supervisor to end a command and report the end. */
const overdueMs = 60_000

export const shownExec = (row: rows.ExecRow) => ({
  exec_id: row.id,
  project_id: row.project_id,
  status: row.status,
  exit_code: row.exit_code,
  reason: row.reason,
  command: row.command,
  working_dir: row.working_dir,
  created_by: row.created_by,
  started_at: row.started_at,
  deadline_at: row.deadline_at,
  ended_at: row.ended_at,
  stdout_bytes: row.stdout_bytes,
  stderr_bytes: row.stderr_bytes,
})

/** The key of a command in `Wake`. */
export const execWakeKey = (exec_id: string) => `exec ${exec_id}`

export function createExecRecords({ store, wake, log }: { store: Store; wake: Wake; log: Log }) {
  const { db } = store
  /** Of running commands; a restarted server has none of them. */
  const git_keys = new Map<string, IssuedKey>()

  /** The commands do not run any more: revokes their git keys and wakes the calls that wait for them. */
  function release(exec_ids: string[]): void {
    for (const exec_id of exec_ids) {
      git_keys.get(exec_id)?.[Symbol.dispose]()
      git_keys.delete(exec_id)
    }
    wake.tell(exec_ids.map(execWakeKey))
  }

  async function require(exec_id: string): Promise<rows.ExecRow> {
    const row = await rows.execById(db, exec_id)
    if (!row) throw unknown('command', exec_id)
    return row
  }

  async function lose(project_id: string, reason: string, ids?: string[]): Promise<void> {
    const lost = await rows.loseExecs(db, project_id, reason, ids)
    for (const exec_id of lost) log.warn('lost a detached command', { project_id, exec_id, reason })
    release(lost)
  }

  async function settle(project_id: string, endings: ExecEnding[]): Promise<string[]> {
    release(await rows.endExecs(db, project_id, endings))
    // Includes commands of other projects and commands that have ended before: reporting them again changes nothing.
    return endings.map(({ exec_id }) => exec_id)
  }

  /** Compares the commands of a supervisor with the rows: what only one side knows is ended there. */
  async function hello(project_id: string, { boot_id, execs }: SupervisorHello) {
    const settled_execs = await settle(project_id, execs.ended)
    const owned = await rows.runningExecs(db, project_id)
    const running = new Set(execs.running)
    const missing = owned.filter(({ id }) => !running.has(id))
    const before = missing.filter((row) => row.boot_id !== boot_id)
    const never = missing.filter((row) => row.boot_id === boot_id)
    const ids = (of: rows.ExecRow[]) => of.map(({ id }) => id)
    await lose(project_id, 'the container was restarted', ids(before))
    await lose(project_id, 'the connection to the container was lost before it was started', ids(never))
    const known = new Set(ids(owned))
    return { settled_execs, unknown_execs: execs.running.filter((id) => !known.has(id)) }
  }

  return {
    require,
    release,
    lose,
    hello,
    holdGitKey: (exec_id: string, key: IssuedKey) => void git_keys.set(exec_id, key),
    ended: async (project_id: string, endings: ExecEnding[]) => ({
      settled: await settle(project_id, endings),
    }),
    status: async (exec_id: string) => shownExec(await require(exec_id)),
    projectOf: async (exec_id: string) => (await rows.execById(db, exec_id))?.project_id,
    async list(filter: { project_id: string; status?: rows.ExecRow['status'] } & PageRequest) {
      await requireProject(db, filter.project_id)
      const { items, next_cursor } = await rows.listExecs(db, filter)
      return { execs: items.map(shownExec), next_cursor }
    },
    /** Part of the reconciler's sweep. A supervisor that reconnects later still reports how they ended. */
    async sweep(): Promise<void> {
      const overdue = await rows.overdueExecs(db, new Date(Date.now() - overdueMs))
      for (const [project_id, of] of Map.groupBy(overdue, (row) => row.project_id))
        await lose(
          project_id,
          'the container did not report its end by the deadline',
          of.map(({ id }) => id),
        )
    },
  }
}
export type ExecRecords = ReturnType<typeof createExecRecords>
