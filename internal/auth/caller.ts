// Who is calling: made by the room that checked the credential, passed unchanged to the one door.
import type { Scope } from './scope.ts'

export type Caller = {
  kind: 'token' | 'oidc' | 'session' | 'schedule'
  /** Public: a token's id, an issuer's subject, a session's id. Never a secret. */
  id: string
  name: string
  scope: Scope
  /** The token at the root of it all; what is revoked when it is revoked. */
  token_id: string | null
  /** Set for the key of a session, and for a token that was minted through one. */
  session_id?: string
  /** Set for the key of a session: the project in whose container it runs. */
  inside_project_id?: string
  /** When the credential ends by itself, ISO 8601; null for never. */
  expires_at: string | null
}
