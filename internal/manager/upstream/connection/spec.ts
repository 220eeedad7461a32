// From the row of an upstream to what is connected: references are resolved, addresses are guarded, stdio servers run in a
// container of their own.
import type { Encryption } from '../../../auth/encryption.ts'
import type { Config } from '../../../config/load.ts'
import { Fault } from '../../../fault.ts'
import { Secret } from '../../../log.ts'
import type { UpstreamRow } from '../../../store/rows/upstream/upstreams.ts'
import type { GuardedFetch, OAuthState, StdioProcess, UpstreamTransport } from '../../../upstream/upstream.ts'
import type { SpecOf } from './connections.ts'
import { createResolve, decryptLiterals, type Literals, type ProjectSecret } from './secrets.ts'

export type StartStdio = (
  row: UpstreamRow,
  env: Record<string, Secret>,
  signal: AbortSignal,
) => Promise<StdioProcess>

export function createSpecOf(deps: {
  config: Pick<Config, 'gateway'>
  encryption: Encryption
  env: NodeJS.ProcessEnv
  secretOf: ProjectSecret
  fetchFor: (row: UpstreamRow) => Promise<GuardedFetch>
  startStdio: StartStdio
  /** Where the browser of a person who consents returns to. */
  redirect_url: string
  readOAuth: (id: string) => Promise<string | null>
  writeOAuth: (id: string, encrypted: string) => Promise<void>
}): SpecOf {
  const { encryption, config } = deps
  const resolve = createResolve(deps)

  const credentialStore = (id: string) => ({
    async read(): Promise<OAuthState | undefined> {
      const stored = await deps.readOAuth(id)
      return stored === null
        ? undefined
        : (JSON.parse(await encryption.decrypt(`${id} oauth`, stored)) as OAuthState)
    },
    write: async (state: OAuthState) =>
      await deps.writeOAuth(id, await encryption.encrypt(`${id} oauth`, JSON.stringify(state))),
  })

  function oauthOf({ id, settings }: UpstreamRow, literals: Literals) {
    const { oauth } = settings
    if (!oauth) return {}
    return {
      oauth: {
        redirect_url: deps.redirect_url,
        store: credentialStore(id),
        grant: oauth.grant,
        ...(oauth.scope ? { scope: oauth.scope } : {}),
        ...(oauth.client_id ? { client_id: oauth.client_id } : {}),
        ...(literals.client_secret ? { client_secret: new Secret(literals.client_secret) } : {}),
      },
    }
  }

  async function transportOf(row: UpstreamRow): Promise<UpstreamTransport> {
    const { settings } = row
    const literals = await decryptLiterals(encryption, row)
    if (settings.transport === 'stdio') {
      const env = await resolve(row, settings.env, literals.env)
      return { kind: 'stdio', start: (signal) => deps.startStdio(row, env, signal) }
    }
    if (!settings.url) throw new Fault('invalid', `MCP server "${row.name}" has no url`)
    const headers = await resolve(row, settings.headers, literals.headers)
    return {
      kind: settings.transport,
      url: settings.url,
      headers,
      fetch: await deps.fetchFor(row),
      ...oauthOf(row, literals),
    }
  }

  return async (row) => ({
    id: row.id,
    name: row.name,
    transport: await transportOf(row),
    timeout_seconds: row.settings.timeout_seconds ?? config.gateway.timeout_seconds,
    concurrency: row.settings.concurrency ?? 16,
    idle_seconds: row.settings.idle_seconds ?? config.gateway.idle_seconds,
    max_result_bytes: row.settings.max_result_bytes ?? config.gateway.max_result_bytes,
  })
}
