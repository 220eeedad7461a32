// Who speaks through a container's socket: the session whose key it is, in the project whose socket it is. A key dies
// with its session, with the token that spawned it, and with the grant of its project where it needs one.
import type { Caller } from '../../auth/caller.ts'
import { isGranted } from '../../auth/grant.ts'
import { parseScope, type Scope } from '../../auth/scope.ts'
import { type SessionKeys, sessionKeyPattern } from '../../auth/session-keys.ts'
import { Fault } from '../../fault.ts'
import type { Store } from '../../store/open.ts'
import { actsNoMore, type KeyHolder, sessionByKeyHash } from '../../store/rows/session/sessions.ts'
import type { Committed } from '../events/log-writer.ts'

export type Identity = {
  session_id: string
  project_id: string
  workspace_id: string
  token_id: string | null
  /** When the key ends with the credential that spawned its session. */
  expires_at: string | null
  /** What its project keeps from its droids. */
  disabled_tools: string[]
  /** What its key may do with our own tools; nothing if the spawner asked for nothing. */
  scope: Scope | null
  caller(scope: Scope): Caller
}

const rememberAtMost = 10_000
/** Another server may end the session or revoke the token; what happens here is known at once. */
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

export function identify(deps: Deps, look = lookUp(deps)) {
  return async (project_id: string, key: string): Promise<Identity> => {
    const row = await look(key)
    // A key of another container's session is no key here.
    if (!row || row.project_id !== project_id)
      throw new Fault('unauthenticated', 'the session key is not known')
    if (actsNoMore(row)) throw new Fault('unauthenticated', 'the session of this key is over')
    if (row.token_revoked_at || (row.token_expires_at && Date.parse(row.token_expires_at) <= Date.now()))
      throw new Fault(
        'unauthenticated',
        'the token that spawned the session of this key is not valid any more',
      )
    const scope = row.api_scope ? parseScope(row.api_scope) : null
    if (scope && !isGranted(row.api_scope_grant, project_id, scope))
      throw new Fault('unauthenticated', `api_scope ${row.api_scope} is not granted to the project any more`)
    const { id, token_id, droid } = row
    // An access token of an issuer lasts for minutes: when it ends, the session goes on without its api_scope.
    const scope_ends =
      [row.token_expires_at, row.key_expires_at].filter((time) => time !== null).sort()[0] ?? null
    const expired = scope_ends !== null && Date.parse(scope_ends) <= Date.now()
    return {
      session_id: id,
      project_id,
      workspace_id: row.workspace_id,
      token_id,
      expires_at: row.token_expires_at,
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
}

/** The same, remembering for a moment: a droid may make thousands of calls. */
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
    // What was read before a change must not be remembered after it.
    if (!holder || seen !== changes) return holder
    if (known.size >= rememberAtMost) known.delete(known.keys().next().value!)
    known.set(key, { holder, until: Date.now() + rememberMs })
    return holder
  }

  return {
    identify: identify(deps, remembered),
    /** A session that is over or is being ended, or starts again with another key. */
    onCommit({ rows }: Committed) {
      const turned = new Set(
        rows
          .filter((row) => actsNoMore(row) || row.status === 'starting' || row.status === 'queued')
          .map(({ id }) => id),
      )
      if (turned.size === 0) return
      changes += 1
      deps.forgetTokens(turned)
      for (const [key, { holder }] of known) if (turned.has(holder.id)) known.delete(key)
    },
    forget() {
      changes += 1
      known.clear()
    },
  }
}
