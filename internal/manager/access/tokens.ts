// Tokens: made, listed, revoked. The secret is shown once, by `create`, and never stored. Nobody makes a token that
// may do more than he himself; only admins get here at all. A token that an admin's token makes is on its own. One that
// is minted through a session, or with a token that a session minted, is a child of that session and of the token behind
// it: it expires with the token at the latest, and the database revokes it together with either of them.
import { chmodSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Caller } from '../../auth/caller.ts'
import { covers, formatScope, parseScope } from '../../auth/scope.ts'
import { hashOf, newSecret, tokenPattern } from '../../auth/tokens.ts'
import { Fault, unknown } from '../../fault.ts'
import { newTokenId } from '../../ids.ts'
import type { Log, Secret } from '../../log.ts'
import type { Db, Store } from '../../store/open.ts'
import type { PageRequest } from '../../store/rows/page.ts'
import { holdSession } from '../../store/rows/session/sessions.ts'
import {
  holdToken,
  insertToken,
  listTokens,
  revokeToken,
  saveLastUsed,
  type TokenRow,
  tokenByHash,
} from '../../store/rows/tokens.ts'

const channel = 'oubliette_tokens'

const shown = (row: TokenRow) => ({
  token_id: row.id,
  name: row.name,
  scope: row.scope,
  created_at: row.created_at,
  created_by: row.created_by,
  expires_at: row.expires_at,
  revoked_at: row.revoked_at,
  last_used_at: row.last_used_at,
  parent_session_id: row.parent_session_id,
  parent_token_id: row.parent_token_id,
})

const earlier = (one: string | null, other: string | null): string | null =>
  one === null || (other !== null && Date.parse(other) < Date.parse(one)) ? other : one

/** The session and the token stay what they are until the child is written: then it is revoked with them. */
async function holdParents(trx: Db, { session_id, token_id }: Caller): Promise<void> {
  if (!session_id) return
  const held = (await holdSession(trx, session_id)) && (token_id === null || (await holdToken(trx, token_id)))
  if (!held) throw new Fault('unauthenticated', `session ${session_id} or its token is not valid any more`)
}

type Deps = {
  store: Store
  requireProject: (project_id: string) => Promise<unknown>
  /** What this server remembers of tokens and of the keys of sessions. */
  forget: () => void
}

export function createTokens({ store, requireProject, forget }: Deps) {
  const { db } = store

  async function create(caller: Caller, wanted: { name: string; scope: string; expires_in_hours?: number }) {
    const scope = parseScope(wanted.scope)
    if (!covers(caller.scope, scope))
      throw new Fault('forbidden', `scope ${wanted.scope} is more than your own`)
    if (scope.kind === 'project') await requireProject(scope.project_id)
    const { session_id = null } = caller
    const secret = newSecret()
    const created = Date.now()
    const row: TokenRow = {
      id: newTokenId(),
      name: wanted.name,
      scope: formatScope(scope),
      hash: hashOf(secret),
      created_by: caller.id,
      created_at: new Date(created).toISOString(),
      expires_at: earlier(
        wanted.expires_in_hours === undefined
          ? null
          : new Date(created + wanted.expires_in_hours * 3_600_000).toISOString(),
        session_id === null ? null : caller.expires_at,
      ),
      revoked_at: null,
      last_used_at: null,
      parent_session_id: session_id,
      parent_token_id: session_id === null ? null : caller.token_id,
    }
    await store.transact(async (trx) => {
      await holdParents(trx, caller)
      await insertToken(trx, row)
    })
    return { ...shown(row), token: secret }
  }

  async function list(page: PageRequest) {
    const { items, next_cursor } = await listTokens(db, page)
    return { tokens: items.map(shown), next_cursor }
  }

  async function revoke(token_id: string) {
    const row = await revokeToken(db, token_id)
    if (!row) throw unknown('token', token_id)
    // Before the answer: the very next request must find it revoked. Other servers are told by the database.
    forget()
    return shown(row)
  }

  return { create, list, revoke }
}

/** What the check of bearers needs of the token table; uses are written down in batches. */
export function tokenSource(db: Db, log: Log) {
  const used = new Set<string>()
  async function flush(): Promise<void> {
    if (used.size === 0) return
    const ids = [...used]
    used.clear()
    await saveLastUsed(db, ids).catch((error: unknown) =>
      log.warn('last use of tokens is not written', { error }),
    )
  }
  const timer = setInterval(() => void flush(), 5_000).unref()
  return {
    byHash: (hash: Buffer) => tokenByHash(db, hash),
    used: (id: string) => void used.add(id),
    async close() {
      clearInterval(timer)
      await flush()
    },
  }
}

/**
 * Told which token was revoked, by whichever server; told nothing when a notification may have been missed, or when it is
 * not a token that changed but what keys of sessions may do.
 */
export const onTokenChange = (
  store: Store,
  changed: (token_id?: string) => void,
): Promise<() => Promise<void>> =>
  store.listen(
    channel,
    (token_id) => changed(token_id || undefined),
    () => changed(),
  )

/** For other servers: what they remember of tokens and keys may be wrong. */
export const tellTokenChange = (store: Store): Promise<void> => store.notify(channel, '')

/** The first admin token: given, found in its file, or minted into it with mode 0600. */
export async function ensureAdminToken(db: Db, home: string, given: Secret | undefined): Promise<void> {
  const file = join(home, 'admin.token')
  const secret = given?.reveal() ?? readToken(file) ?? newSecret()
  const row = await tokenByHash(db, hashOf(secret))
  if (!row)
    await insertToken(db, {
      id: newTokenId(),
      name: given ? 'admin (from the environment)' : 'admin',
      scope: 'admin',
      hash: hashOf(secret),
      created_by: 'first start',
      created_at: new Date().toISOString(),
    })
  if (given || readToken(file) === secret) return
  writeFileSync(`${file}.new`, `${secret}\n`, { mode: 0o600 })
  chmodSync(`${file}.new`, 0o600)
  renameSync(`${file}.new`, file)
}

function readToken(file: string): string | undefined {
  try {
    const text = readFileSync(file, 'utf8').trim()
    return tokenPattern.test(text) ? text : undefined
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}
