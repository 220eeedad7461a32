// The caller: created by the room that checked the credential, passed unchanged to the door.
import type { Scope } from './scope.ts'

export type Caller = {
  kind: 'token' | 'oidc' | 'session' | 'schedule'
  /** Public: a token's id, an issuer's subject, a session's id. Never a secret. */
  id: string
  name: string
  scope: Scope
  /** The token at the root: the caller ends when it is revoked. */
  token_id: string | null
  /** Set for the key of a session, and for a token that a session created. */
  session_id?: string
  /** Set for the key of a session: the project in whose container it runs. */
  inside_project_id?: string
  /** When the credential ends by itself, ISO 8601; null for never. */
  expires_at: string | null
}
