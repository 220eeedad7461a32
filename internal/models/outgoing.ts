// The request as the provider gets it: its own address and headers, without anything that was meant for us, and with the
// real key. Nothing here is ever logged.
import type { IncomingHttpHeaders } from 'node:http'
import type { Credential } from '../config-models.ts'
import { Fault } from '../fault.ts'
import { type ProviderName, providers } from './providers.ts'
import { sign } from './sigv4.ts'

/** Of one connection, of us, or a secret: none of them goes on, in either direction. */
const kept_back = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'host',
  'expect',
  'cookie',
  'set-cookie',
  'authorization',
  'x-api-key',
  'x-goog-api-key',
  'x-amz-date',
  'x-amz-security-token',
  'x-amz-content-sha256',
  // So that we can read along.
  'accept-encoding',
])

export function passedOn(headers: IncomingHttpHeaders): Record<string, string> {
  const named = new Set((headers.connection ?? '').split(',').map((name) => name.trim().toLowerCase()))
  const passed: Record<string, string> = {}
  for (const [name, value] of Object.entries(headers))
    if (value !== undefined && !kept_back.has(name) && !named.has(name))
      passed[name] = Array.isArray(value) ? value.join(', ') : value
  return passed
}

export function baseUrl(provider: ProviderName, credential: Credential): string {
  const base = credential.base_url ?? providers[provider].base_url
  if (!base)
    throw new Fault('invalid', `the credential for ${provider} has no base_url`, {
      hint: 'give it the address of the server, for example http://127.0.0.1:11434/v1',
    })
  return base.replace('{region}', credential.region ?? 'us-east-1').replace(/\/+$/, '')
}

/** The one secret that the droid showed us, wherever its provider's clients put it. */
export function keyShown(headers: IncomingHttpHeaders, query: URLSearchParams): string | undefined {
  const one = (value: string | string[] | undefined) => (Array.isArray(value) ? value[0] : value)
  const bearer = /^Bearer\s+(\S+)$/i.exec(headers.authorization ?? '')?.[1]
  return (
    one(headers['x-api-key']) ?? one(headers['x-goog-api-key']) ?? bearer ?? query.get('key') ?? undefined
  )
}

export type Outgoing = { url: URL; method: string; headers: Record<string, string> }

export function outgoing(
  provider: ProviderName,
  credential: Credential,
  request: { method: string; path: string; query: URLSearchParams; headers: IncomingHttpHeaders },
  body: Buffer,
): Outgoing {
  const url = new URL(baseUrl(provider, credential) + request.path)
  for (const [name, value] of request.query) if (name !== 'key') url.searchParams.append(name, value)
  const headers: Record<string, string> = { ...passedOn(request.headers), 'accept-encoding': 'identity' }
  delete headers['content-length']
  if (request.method === 'POST') headers['content-length'] = String(body.length)
  const key = credential.key.reveal()
  const { method } = request
  if (provider === 'anthropic') headers['x-api-key'] = key
  else if (provider === 'gemini') headers['x-goog-api-key'] = key
  else if (provider === 'bedrock' && credential.access_key_id) {
    const signing = {
      access_key_id: credential.access_key_id,
      secret_access_key: key,
      region: credential.region ?? 'us-east-1',
      service: 'bedrock',
      ...(credential.session_token ? { session_token: credential.session_token.reveal() } : {}),
    }
    return {
      url,
      method,
      headers: sign({ method, url, headers, body }, signing, new Date()),
    }
  } else headers.authorization = `Bearer ${key}`
  return { url, method, headers }
}
