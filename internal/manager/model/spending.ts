// The spending of projects, in rows: a model request reserves its maximum cost before it is sent, and is settled with its actual
// cost in the transaction that records its usage. A running server renews the leases of its reservations. The sweep charges
// reservations of ended processes in full: the request may have been answered.
import { createHash, randomUUID } from 'node:crypto'
import type { Config } from '../../config/load.ts'
import { Fault, messageOf, unknown } from '../../fault.ts'
import type { Log } from '../../log.ts'
import type { ModelUsage } from '../../models/usage/charge.ts'
import type { Db, Store } from '../../store/open.ts'
import * as rows from '../../store/rows/spending.ts'
import { addUsage } from '../../store/rows/usage.ts'
import type { SessionChanging } from '../session/change.ts'

const leaseSeconds = 60
const renewMs = 15_000

type Deps = {
  store: Store
  config: Config
  change: SessionChanging
  log: Log
  /** The secret of the home, which one process at a time uses: its hash names the home in rows. */
  secret: Buffer
}
type Usage = Omit<ModelUsage, 'provider'> & { provider: string }
type Ended = { id: string; project_id: string; session_id: string }
type What = { project_id: string; session_id: string; provider: string; model: string; usd: number }

function refusal({ spent_usd, reserved_usd, limit_usd }: rows.Admission): Fault {
  if (spent_usd >= limit_usd)
    return new Fault(
      'exhausted',
      `the project has cost ${spent_usd.toFixed(2)} US dollars, the limit is ${limit_usd}`,
      { hint: 'raise limits.max_cost_usd' },
    )
  return new Fault(
    'unavailable',
    `running requests reserve ${reserved_usd.toFixed(2)} US dollars, all that is left of max_cost_usd (${limit_usd})`,
    { hint: 'wait until they end, or raise limits.max_cost_usd', retry_after_seconds: 2 },
  )
}

export function createSpending({ store, config, change, log, secret }: Deps) {
  const home = createHash('sha256').update('spending').update(secret).digest('hex').slice(0, 32)
  const holder = { home, process: randomUUID() }
  const held = new Set<string>()
  /** By project: answered requests whose cost is being written. */
  const settling = new Map<string, Set<Promise<void>>>()

  const event = (usage: Usage) => ({
    type: 'usage',
    at: new Date().toISOString(),
    data: { source: 'gateway', ...usage },
  })

  /**
   * Ends a reservation and records its cost. `is_held`: the request is of this process and counts even if the reservation no
   * longer exists, because the database lost it or a sweep charged it after a long pause: better twice than never.
   */
  async function charge(ended: Ended, usage: Usage, is_held: boolean): Promise<void> {
    const { id, project_id, session_id } = ended
    const ends = async (trx: Db) => (await rows.deleteReservation(trx, id)) || is_held
    try {
      await change(session_id, async (trx, _row, write) => {
        if (await ends(trx)) await write([event(usage)])
      })
    } catch (error) {
      if (!(error instanceof Fault) || error.kind !== 'not_found') throw error
      // The session was deleted meanwhile; its cost still counts.
      await store.transact(async (trx) => {
        if (!(await ends(trx))) return
        await rows.addCost(trx, project_id, usage.cost_usd)
        const { input_tokens, output_tokens, cost_usd } = usage
        const hour = `${new Date().toISOString().slice(0, 13)}:00:00.000Z`
        const counted = { input_tokens, output_tokens, cost_usd, model: usage.model.slice(0, 200) }
        await addUsage(trx, [{ hour, project_id, session_id, token_id: null, ...counted }])
      })
    }
  }

  async function admit(reservation: rows.NewReservation): Promise<void> {
    const { project_id } = reservation
    const limit = config.limits.max_cost_usd
    const ask = async () => {
      const admission = await rows.reserveModelCost(store.db, reservation, limit, leaseSeconds)
      if (!admission) throw unknown('project', project_id)
      return admission
    }
    const first = await ask()
    if (first.admitted) return
    // The droid gets an answer before its reservation is settled: wait for that and try again.
    const ending = settling.get(project_id)
    if (!ending) throw refusal(first)
    await Promise.allSettled(ending)
    const second = await ask()
    if (!second.admitted) throw refusal(second)
  }

  async function reserve({ project_id, session_id, provider, model, usd }: What) {
    const id = randomUUID()
    const reservation = { id, project_id, session_id, provider, model, amount_usd: usd, ...holder }
    await admit(reservation)
    held.add(id)
    /** Its lease is not renewed from here on: if this fails, the sweep charges it in full. */
    const end = async (work: Promise<void>) => {
      held.delete(id)
      const mine = settling.get(project_id) ?? new Set()
      settling.set(project_id, mine.add(work))
      await work.finally(() => {
        mine.delete(work)
        if (mine.size === 0) settling.delete(project_id)
      })
    }
    return {
      settle: (usage: ModelUsage) => end(charge(reservation, usage, true)),
      release: () => end(rows.deleteReservation(store.db, id).then(() => undefined)),
    }
  }

  async function sweep(): Promise<void> {
    for (const dead of await rows.deadReservations(store.db, holder)) {
      const { provider, model, amount_usd } = dead
      log.warn('charging a model request in full whose server ended during it', {
        session_id: dead.session_id,
        provider,
        model,
        cost_usd: amount_usd,
      })
      const none = { input_tokens: 0, output_tokens: 0, cache_read_tokens: 0, cache_write_tokens: 0 }
      // A failure must not prevent the others from being charged; the next sweep tries again.
      await charge(dead, { provider, model, ...none, cost_usd: amount_usd, estimated: true }, false).catch(
        (error: unknown) => log.error('failed to charge a reservation', { id: dead.id, error }),
      )
    }
  }

  const renewing = setInterval(() => {
    if (held.size === 0) return
    rows
      .renewReservations(store.db, [...held], leaseSeconds)
      .catch((error: unknown) =>
        log.warn('failed to renew the reservations of model requests', { reason: messageOf(error) }),
      )
  }, renewMs)
  renewing.unref()

  return { reserve, sweep, close: () => clearInterval(renewing) }
}
