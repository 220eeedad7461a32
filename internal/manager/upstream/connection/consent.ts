// OAuth consents of upstreams. `mcp_server auth` begins one; credentials that are missing or refused begin one too and ask for it
// in the inbox, so that an expired authorization is never only a failing call. The browser of the person returns with the
// state, which only it and this server know; its hash is stored, so that an answer is accepted after a restart.
import { createHash } from 'node:crypto'
import { Fault, messageOf } from '../../../fault.ts'
import { createKeyedQueue } from '../../../lib/keyed-queue.ts'
import type { Log } from '../../../log.ts'
import type { Store } from '../../../store/open.ts'
import {
  saveObserved,
  type UpstreamRow,
  upstreamByConsent,
  upstreamById,
} from '../../../store/rows/upstream/upstreams.ts'
import type { ApprovalInbox } from '../../approval/approvals.ts'
import type { Connections } from './connections.ts'

const validMs = 7 * 24 * 3_600_000
const hashOf = (state: string) => createHash('sha256').update(state).digest('hex')
const needed = new Set(['needs_reauth', 'revoked'])

export function createConsents(deps: {
  store: Store
  connections: Connections
  approvals: Pick<ApprovalInbox, 'post' | 'resolve'>
  /** After the authorization: the lists may be another one's. */
  authorized: (upstream_id: string) => void
  log: Log
}) {
  const { db } = deps.store
  const asked = new Set<string>()
  // One at a time per upstream: each consent that begins invalidates the one before.
  const serial = createKeyedQueue()

  async function begin(row: UpstreamRow): Promise<{ url: string } | undefined> {
    const begun = await (await deps.connections.use(row)).authorize(row.id)
    if (!begun) return undefined
    await saveObserved(db, row.id, {
      consent_hash: hashOf(begun.state),
      consent_at: new Date().toISOString(),
    })
    return { url: begun.url }
  }

  async function ask(id: string): Promise<void> {
    const row = await upstreamById(db, id)
    // One that was begun stays valid: a second one would invalidate the address that a person already has.
    const isBegun = row?.consent_hash && row.consent_at && Date.parse(row.consent_at) + validMs > Date.now()
    const begun = row?.enabled && !isBegun ? await begin(row) : undefined
    if (!row || !begun) return
    await deps.approvals.post({
      kind: 'consent',
      session_id: null,
      project_id: row.project_id,
      server: row.name,
      server_id: id,
      tool: null,
      key: `consent ${id}`,
      url: begun.url,
    })
  }

  const unsubscribe = deps.connections.subscribe(({ id, status: { credentials } }) => {
    if (!needed.has(credentials)) return void asked.delete(id)
    if (asked.has(id)) return
    asked.add(id)
    serial(id, () => ask(id)).catch((error: unknown) => {
      asked.delete(id)
      deps.log.warn('failed to ask for the authorization of an MCP server', {
        upstream_id: id,
        reason: messageOf(error),
      })
    })
  })

  return {
    /** By request: replaces a consent that was asked for before. */
    begin: (row: UpstreamRow): Promise<{ url: string } | undefined> =>
      serial(row.id, async () => {
        const begun = await begin(row)
        if (begun)
          await deps.approvals.resolve(
            { kind: 'consent', server_id: row.id },
            { status: 'cancelled', reason: 'another consent was begun', decided_by: null },
          )
        return begun
      }),
    /** With what the browser brings back. */
    async finish(answer: {
      state: string
      code?: string
      error?: string
      iss?: string
    }): Promise<{ name: string }> {
      const row = await upstreamByConsent(db, hashOf(answer.state))
      const isValid = row?.consent_at && Date.parse(row.consent_at) + validMs > Date.now()
      if (!row || !isValid)
        throw new Fault('not_found', 'this consent is unknown or no longer valid', {
          hint: 'begin a new one with mcp_server auth',
        })
      // Once: a second answer with the same state is refused.
      await saveObserved(db, row.id, { consent_hash: null })
      const refused = (reason: string) => {
        void deps.approvals
          .resolve({ kind: 'consent', server_id: row.id }, { status: 'denied', reason, decided_by: null })
          .catch(() => undefined)
        return new Fault('forbidden', `MCP server "${row.name}" was not authorized: ${reason}`)
      }
      if (answer.code === undefined) throw refused((answer.error ?? 'no code').slice(0, 200))
      const { code, state, iss } = answer
      await serial(row.id, async () => {
        // Credentials that are loaded now are still missing: nothing is asked while they are being obtained.
        asked.add(row.id)
        try {
          const upstreams = await deps.connections.use(row)
          await upstreams.finishAuthorization(row.id, { code, state, ...(iss ? { iss } : {}) })
        } finally {
          asked.delete(row.id)
        }
      })
      await deps.approvals.resolve(
        { kind: 'consent', server_id: row.id },
        { status: 'allowed', reason: null, decided_by: null },
      )
      deps.authorized(row.id)
      return { name: row.name }
    },
    close: unsubscribe,
  }
}
