// Who speaks through a container's socket: the session whose key it is, in the project whose socket it is. A key dies
// with its session and with the token that spawned it.
import type { Caller } from '../auth/caller.ts'
import { parseScope, type Scope } from '../auth/scope.ts'
import { type SessionKeys, sessionKeyPattern } from '../auth/session-keys.ts'
import { Fault } from '../fault.ts'
import type { Store } from '../store/open.ts'
import { isOver, type KeyHolder, sessionByKeyHash } from '../store/sessions.ts'
import type { Committed } from './log-writer.ts'

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

type Deps = { store: Store; keys: SessionKeys }
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
    if (isOver(row.status)) throw new Fault('unauthenticated', 'the session of this key is over')
    const { expires_at } = row
    if (row.token_revoked_at || (expires_at && Date.parse(expires_at) <= Date.now()))
      throw new Fault(
        'unauthenticated',
        'the token that spawned the session of this key is not valid any more',
      )
    const { id, token_id, droid } = row
    return {
      session_id: id,
      project_id,
      workspace_id: row.workspace_id,
      token_id,
      expires_at,
      disabled_tools: row.disabled_tools,
      scope: row.api_scope ? parseScope(row.api_scope) : null,
      caller: (scope) => ({ kind: 'session', id, name: droid, scope, token_id, expires_at, session_id: id }),
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
    /** A session that is over, or starts again with another key. */
    onCommit({ rows }: Committed) {
      const turned = new Set(
        rows.filter(({ status }) => isOver(status) || status === 'starting').map(({ id }) => id),
      )
      if (turned.size === 0) return
      changes += 1
      for (const [key, { holder }] of known) if (turned.has(holder.id)) known.delete(key)
    },
    forget() {
      changes += 1
      known.clear()
    },
  }
}
