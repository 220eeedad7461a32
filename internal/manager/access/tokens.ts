// Tokens: create, list, revoke. `create` returns the secret once; only its hash is stored. A token never exceeds the scope of its
// creator, and only admins create tokens. A token that is created with an admin token is independent. One that is created
// through a session, or with a token that a session created, is a child of that session and of the token behind it: it expires
// with the token at the latest, and the database revokes it together with either of them.
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
import type { ProjectNames } from '../project/names.ts'

const channel = 'oubliette_tokens'

/** The project of its scope; none for a scope of all projects. */
const projectOf = ({ scope }: TokenRow): string[] => {
  const parsed = parseScope(scope)
  return parsed.kind === 'project' ? [parsed.project_id] : []
}

const shown = (row: TokenRow, nameOf: (project_id: string) => string) => ({
  token_id: row.id,
  name: row.name,
  scope: row.scope,
  project_name: projectOf(row).map(nameOf)[0] ?? null,
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

/** Locks the session and the token until the child is written, so that it is revoked together with them. */
async function holdParents(trx: Db, { session_id, token_id }: Caller): Promise<void> {
  if (!session_id) return
  const held = (await holdSession(trx, session_id)) && (token_id === null || (await holdToken(trx, token_id)))
  if (!held) throw new Fault('unauthenticated', `session ${session_id} or its token is no longer valid`)
}

type Deps = {
  store: Store
  requireProject: (project_id: string) => Promise<unknown>
  projectNames: Pick<ProjectNames, 'of'>
  /** Clears the cached tokens and session keys of this server. */
  forget: () => void
}

export function createTokens({ store, requireProject, projectNames, forget }: Deps) {
  const { db } = store

  async function described(rows: TokenRow[]) {
    const nameOf = await projectNames.of(rows.flatMap(projectOf))
    return rows.map((row) => shown(row, nameOf))
  }

  async function create(caller: Caller, wanted: { name: string; scope: string; expires_in_hours?: number }) {
    const scope = parseScope(wanted.scope)
    if (!covers(caller.scope, scope))
      throw new Fault('forbidden', `scope ${wanted.scope} exceeds your own scope`)
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
    return { ...(await described([row]))[0]!, token: secret }
  }

  async function list(page: PageRequest) {
    const { items, next_cursor } = await listTokens(db, page)
    return { tokens: await described(items), next_cursor }
  }

  async function revoke(token_id: string) {
    const row = await revokeToken(db, token_id)
    if (!row) throw unknown('token', token_id)
    // Before the response: the next request must find it revoked. The database notifies other servers.
    forget()
    return (await described([row]))[0]!
  }

  return { create, list, revoke }
}

/** Access of the bearer check to the token table; last uses are written in batches. */
export function tokenSource(db: Db, log: Log) {
  const used = new Set<string>()
  async function flush(): Promise<void> {
    if (used.size === 0) return
    const ids = [...used]
    used.clear()
    await saveLastUsed(db, ids).catch((error: unknown) =>
      log.warn('failed to save the last use of tokens', { error }),
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
 * Calls `changed` with the token that any server revoked; without one if a notification may have been missed, or if the scope
 * of session keys changed instead of a token.
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

/** Makes all servers clear their cached tokens and session keys. */
export const notifyTokenChange = (store: Store): Promise<void> => store.notify(channel, '')

/** The first admin token: given, read from its file, or created there with mode 0600. */
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
