// The scheduler with 10,000 schedules on a real PostgreSQL: what it costs while nothing is due, how late a due run is
// started, and how long it takes when a thousand are due at once. The door is a stub that records the time, so that the
// scheduler is measured and not a container. Usage: schedules.ts [schedules] [idle seconds]
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { sql } from 'kysely'
import { createLog } from '../internal/log.ts'
import { createScheduler } from '../internal/manager/schedule/scheduler.ts'
import { startEmbedded } from '../internal/store/embedded/embedded.ts'
import { migrate } from '../internal/store/migrate.ts'
import { openStore } from '../internal/store/open.ts'

const count = Number(process.argv[2] ?? 10_000)
const idleSeconds = Number(process.argv[3] ?? 20)
const single = 20
const burst = Math.min(1000, count)
const log = createLog({ level: 'warn' })
const ticksPerSecond = 100

await using stack = new AsyncDisposableStack()
const home = await mkdtemp(join(tmpdir(), 'oub-schedules-'))
stack.defer(() => rm(home, { recursive: true, force: true }))
const embedded = await startEmbedded({ home, log })
stack.defer(() => embedded.stop())
const store = await openStore({ database_url: embedded.url, log })
stack.defer(() => store.close())
await migrate(store.db, log)

const started: number[] = []
const scheduler = createScheduler({
  store,
  log,
  queue_limit: 10,
  keep_runs: 1000,
  async call(_caller, { action, idempotency_key }) {
    if (action === 'spawn') started.push(Date.now())
    const turn_id = String(idempotency_key)
    return { is_error: false, structured: { session_id: `gogol_${turn_id}`, turn_id, since_index: -1 } }
  },
  async *follow(session_id) {
    const turn_id = session_id.slice('gogol_'.length)
    yield [{ type: 'completion', data: { turn_id, final_text: 'ok', stop_reason: 'end_turn' } }]
  },
})

await sql`
  insert into projects (id, name, description, container_type, init_git, workspace_isolation, protected_paths, network,
    limits, disabled_tools, mcp_servers, credential_refs, created_by)
  values (gen_random_uuid(), 'bench', '', 'base', false, false, '[]', 'none', '{}', '[]', '[]', '[]', 'bench')`.execute(
  store.db,
)
await sql`
  insert into schedules (id, name, cron_expr, time_zone, prompt, enabled, overlap_behavior, session_behavior, catch_up,
    scope, created_by, next_run_at, created_at, updated_at)
  select 'sch_' || lpad(i::text, 20, '0'), 'bench', '0 3 * * *', 'Europe/Berlin', 'true', true, 'parallel', 'new', 'skip',
    'admin', 'bench', now() + interval '2 hours' + i * interval '1 second', now(), now()
  from generate_series(1, ${sql.lit(count)}) as i`.execute(store.db)
await sql`insert into schedule_targets (schedule_id, project_id) select schedules.id, projects.id from schedules, projects`.execute(
  store.db,
)
await sql`analyze`.execute(store.db)
await scheduler.start({ sole: false })
stack.defer(() => scheduler.close())

/** Processor seconds of PostgreSQL, all its processes together. */
async function databaseCpu(): Promise<number> {
  let ticks = 0
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
    const fields = stat.replace(/^.*\) /, '').split(' ')
    if (Number(pid) === embedded.pid() || Number(fields[1]) === embedded.pid())
      ticks += Number(fields[11]) + Number(fields[12])
  }
  return ticks / ticksPerSecond
}

const print = (what: string, figure: string) => process.stdout.write(`${what.padEnd(44)}${figure}\n`)
const percent = (seconds: number, of: number) => `${((seconds / of) * 100).toFixed(2)} % of a core`

/** Makes some of them due at a moment, and waits until all of these are started. */
async function makeDue(first: number, many: number, at: number): Promise<number[]> {
  const before = started.length
  await sql`update schedules set next_run_at = ${new Date(at).toISOString()}::timestamptz
    where id between ${`sch_${String(first).padStart(20, '0')}`} and ${`sch_${String(first + many - 1).padStart(20, '0')}`}`.execute(
    store.db,
  )
  await scheduler.changed('')
  const deadline = at + 60_000
  while (started.length < before + many) {
    if (Date.now() > deadline) throw new Error(`only ${started.length - before} of ${many} were started`)
    await pause(5)
  }
  return started.slice(before).map((time) => time - at)
}

await pause(1000)
const cpu = process.cpuUsage()
const databaseBefore = await databaseCpu()
await pause(idleSeconds * 1000)
const used = process.cpuUsage(cpu)
const databaseUsed = (await databaseCpu()) - databaseBefore
print(`${count} schedules, nothing due for ${idleSeconds} s`, '')
print('  scheduler', percent((used.user + used.system) / 1e6, idleSeconds))
print('  PostgreSQL', percent(databaseUsed, idleSeconds))

const late: number[] = []
for (let number = 0; number < single; number += 1)
  late.push(...(await makeDue(1 + number, 1, Date.now() + 300)))
late.sort((a, b) => a - b)
print(
  `one due run, ${single} times: started late by`,
  `${late[single >> 1]} ms (median), ${late.at(-1)} ms (most)`,
)

const many = (await makeDue(single + 1, burst, Date.now() + 1000)).sort((a, b) => a - b)
print(
  `${burst} due at once: all started after`,
  `${many.at(-1)} ms, half of them after ${many[burst >> 1]} ms`,
)
process.exitCode = late.at(-1)! <= 1000 ? 0 : 1
