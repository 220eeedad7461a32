// OAuth protected-resource metadata (RFC 9728): tells a client which issuer's tokens are accepted here.
export type Oidc = { issuer: string; audience: string }

const path = '/.well-known/oauth-protected-resource'

/** An audience that is a URL is how this server is known outside; behind a proxy the request's own Host is not. */
function originOf(oidc: Oidc, host: string): string {
  return URL.canParse(oidc.audience) && /^https?:/.test(oidc.audience)
    ? new URL(oidc.audience).origin
    : `http://${host}`
}

export function resourceMetadata(oidc: Oidc, host: string) {
  const origin = originOf(oidc, host)
  return {
    resource: oidc.audience.startsWith(`${origin}/`) ? oidc.audience : `${origin}/mcp`,
    resource_name: 'Oubliette',
    authorization_servers: [oidc.issuer],
    bearer_methods_supported: ['header'],
    scopes_supported: ['admin', 'admin:ro'],
  }
}

/** The challenge of a 401. */
export function challenge(oidc: Oidc | undefined, host: string, presented: boolean): string {
  const parts = ['realm="oubliette"']
  if (presented) parts.push('error="invalid_token"')
  if (oidc) parts.push(`resource_metadata="${originOf(oidc, host)}${path}/mcp"`)
  return `Bearer ${parts.join(', ')}`
}
