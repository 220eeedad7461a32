// What is kept of an authorization, in the store of its owner. Read once; every change is written before it counts, in order.
import type {
  OAuthDiscoveryState,
  StoredOAuthClientInformation,
  StoredOAuthTokens,
} from '@modelcontextprotocol/client'
import type { CredentialStore, OAuthState } from '../upstream.ts'

export type Stored = {
  client?: StoredOAuthClientInformation
  tokens?: StoredOAuthTokens & { expires_at?: number }
  discovery?: OAuthDiscoveryState
  /** The resource that tokens are for. */
  resource?: string
  /** Of the last answer that refused a token. */
  challenge?: { resource_metadata_url?: string; scope?: string }
  /** A consent that was begun. */
  pending?: { state: string; verifier?: string }
  /** The authorization server refused the tokens. */
  refused?: 'needs_reauth' | 'revoked'
}

export type StoredAccess = {
  load(): Promise<Stored>
  /** As far as it is loaded. */
  current(): Stored | undefined
  change(fields: { [K in keyof Stored]: Stored[K] | undefined }): Promise<void>
}

export function createStored(store: CredentialStore, onChanged: () => void): StoredAccess {
  let loading: Promise<Stored> | undefined
  let current: Stored | undefined
  let writing: Promise<unknown> = Promise.resolve()

  function load(): Promise<Stored> {
    loading ??= store.read().then(
      (state) => {
        current = (state ?? {}) as Stored
        onChanged()
        return current
      },
      (error: unknown) => {
        loading = undefined
        throw error
      },
    )
    return loading.then(() => current!)
  }

  return {
    load,
    current: () => current,
    async change(fields) {
      await load()
      const next = { ...current, ...fields } as Record<string, unknown>
      for (const [name, value] of Object.entries(next)) if (value === undefined) delete next[name]
      current = next as Stored
      const write = writing.then(() => store.write(next as OAuthState))
      writing = write.catch(() => undefined)
      await write
      onChanged()
    },
  }
}
