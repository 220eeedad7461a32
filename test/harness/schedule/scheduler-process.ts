// One scheduler in a process of its own, for those who want to kill it. Its door writes down what was started, by whom and
// when, and every turn ends by itself. Usage: DATABASE_URL=… scheduler-process.ts NAME
import { setTimeout as pause } from 'node:timers/promises'
import { sql } from 'kysely'
import { createLog, Secret } from '../../../internal/log.ts'
import { createScheduler } from '../../../internal/manager/schedule/scheduler.ts'
import { openStore } from '../../../internal/store/open.ts'

const [name = ''] = process.argv.slice(2)
const log = createLog({ level: 'warn' })
const store = await openStore({ database_url: new Secret(process.env.DATABASE_URL ?? ''), log })

let followed = 0
const scheduler = createScheduler({
  store,
  log,
  queue_limit: 10,
  keep_runs: 1_000_000,
  lease_ms: 5_000,
  async call(_caller, args) {
    if (args.action !== 'spawn') return { is_error: false, structured: {} }
    const key = String(args.idempotency_key)
    await sql`insert into starts (run_id, process, at) values (${key}, ${name}, now())`.execute(store.db)
    return { is_error: false, structured: { session_id: `gogol_${key}`, turn_id: key, since_index: -1 } }
  },
  async *follow(session_id, _since_index, signal) {
    // Turns of 100 to 400 ms, so that they end in another order than they began.
    const turn_ms = 100 + ((followed++ * 97) % 300)
    await pause(turn_ms, undefined, { signal }).catch(() => undefined)
    const turn_id = session_id.slice('gogol_'.length)
    if (!signal.aborted)
      yield [{ type: 'completion', data: { turn_id, final_text: 'ok', stop_reason: 'end_turn' } }]
  },
})
process.once('SIGTERM', () => {
  void scheduler
    .close()
    .then(() => store.close())
    .then(() => process.exit(0))
})
await scheduler.start({ sole: false })
process.stdout.write('started\n')
