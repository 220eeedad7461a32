// Authenticates connections on the socket of a container: the session that the key belongs to, in the project that the socket
// belongs to. A key expires with its session, with the token that spawned it, and with the grant of its project if it needs one.
import type { Caller } from '../../auth/caller.ts'
import { isGranted } from '../../auth/grant.ts'
import { parseScope, type Scope } from '../../auth/scope.ts'
import { type SessionKeys, sessionKeyPattern } from '../../auth/session-keys.ts'
import { Fault, messageOf, unknown } from '../../fault.ts'
import { isBeforeStart } from '../../protocol/session-status.ts'
import type { Store } from '../../store/open.ts'
import {
  actsNoMore,
  type KeyHolder,
  sessionByKeyHash,
  sessionKeyHolder,
} from '../../store/rows/session/sessions.ts'
import type { Committed } from '../events/log-writer.ts'

export type Identity = {
  session_id: string
  project_id: string
  workspace_id: string
  token_id: string | null
  /** When the credential that spawned the session expires, and the key with it. */
  expires_at: string | null
  /** The name of its droid in the config. */
  droid: string
  autonomy: KeyHolder['autonomy_level']
  /** Tools that the project disables for its droids. */
  disabled_tools: string[]
  /** Scope of the key for `oubliette_*` tools; null if the spawn requested none. */
  scope: Scope | null
  caller(scope: Scope): Caller
}

const rememberAtMost = 10_000
/** Another server may end the session or revoke the token; changes on this server clear the cache at once. */
const rememberMs = 1_000

type Deps = {
  store: Store
  keys: SessionKeys
  /** Tokens that were minted through these sessions. */
  forgetTokens: (session_ids: ReadonlySet<string>) => void
}
type Look = (key: string) => Promise<KeyHolder | undefined>

const lookUp =
  ({ store, keys }: Deps): Look =>
  async (key) =>
    sessionKeyPattern.test(key) ? await sessionByKeyHash(store.db, keys.hashOf(key)) : undefined

/** Throws `unauthenticated` if the session may not act. */
function identityFrom(row: KeyHolder): Identity {
  const { project_id } = row
  if (actsNoMore(row)) throw new Fault('unauthenticated', 'the session of this key has ended')
  if (row.token_revoked_at || (row.token_expires_at && Date.parse(row.token_expires_at) <= Date.now()))
    throw new Fault('unauthenticated', 'the token that spawned the session of this key is no longer valid')
  const scope = row.api_scope ? parseScope(row.api_scope) : null
  if (scope && !isGranted(row.api_scope_grant, project_id, scope))
    throw new Fault('unauthenticated', `api_scope ${row.api_scope} is no longer granted to the project`)
  const { id, token_id, droid } = row
  // An OIDC access token lasts for minutes: when it expires, the session continues without its api_scope.
  const scope_ends =
    [row.token_expires_at, row.key_expires_at].filter((time) => time !== null).sort()[0] ?? null
  const expired = scope_ends !== null && Date.parse(scope_ends) <= Date.now()
  return {
    session_id: id,
    project_id,
    workspace_id: row.workspace_id,
    token_id,
    expires_at: row.token_expires_at,
    droid,
    autonomy: row.autonomy_level,
    disabled_tools: row.disabled_tools,
    scope: expired ? null : scope,
    caller: (acting) => ({
      kind: 'session',
      id,
      name: droid,
      scope: acting,
      token_id,
      session_id: id,
      inside_project_id: project_id,
      expires_at: acting === scope ? scope_ends : row.token_expires_at,
    }),
  }
}

export function identify(deps: Deps, look = lookUp(deps)) {
  return async (project_id: string, key: string): Promise<Identity> => {
    const row = await look(key)
    // A key of a session in another container is not valid here.
    if (!row || row.project_id !== project_id) throw new Fault('unauthenticated', 'unknown session key')
    return identityFrom(row)
  }
}

/** The same with a short cache: a droid may make thousands of calls. */
export function createIdentities(deps: Deps) {
  const look = lookUp(deps)
  const known = new Map<string, { holder: KeyHolder; until: number }>()
  let changes = 0

  async function remembered(key: string): Promise<KeyHolder | undefined> {
    const before = known.get(key)
    if (before && before.until > Date.now()) return before.holder
    known.delete(key)
    const seen = changes
    const holder = await look(key)
    // A row that was read before a change must not be cached after it.
    if (!holder || seen !== changes) return holder
    if (known.size >= rememberAtMost) known.delete(known.keys().next().value!)
    known.set(key, { holder, until: Date.now() + rememberMs })
    return holder
  }

  return {
    identify: identify(deps, remembered),
    /** As its own key would identify it. */
    async of(session_id: string): Promise<Identity> {
      const row = await sessionKeyHolder(deps.store.db, session_id)
      if (!row) throw unknown('session', session_id)
      try {
        return identityFrom(row)
      } catch (error) {
        // The credential of the asking caller is valid.
        throw new Fault('conflict', `session ${session_id} has no tools: ${messageOf(error)}`)
      }
    },
    /** Clears sessions that have ended, are being ended, or start again with a new key. */
    onCommit({ rows }: Committed) {
      const changed = new Set(
        rows
          .filter((row) => actsNoMore(row) || row.status === 'starting' || isBeforeStart(row.status))
          .map(({ id }) => id),
      )
      if (changed.size === 0) return
      changes += 1
      deps.forgetTokens(changed)
      for (const [key, { holder }] of known) if (changed.has(holder.id)) known.delete(key)
    },
    forget() {
      changes += 1
      known.clear()
    },
  }
}
