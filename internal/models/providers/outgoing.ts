// The request as the provider gets it: its own address and headers, without anything that was meant for us, and with the
// real key. Nothing here is ever logged.
import type { IncomingHttpHeaders } from 'node:http'
import type { Credential } from '../../config/models.ts'
import { Fault } from '../../fault.ts'
import { type ProviderName, providers } from './providers.ts'
import { sign } from './sigv4.ts'

/** What clients of the providers send and a provider may want; nothing else of the droid's headers goes on. */
const sent = new Set([
  'accept',
  'user-agent',
  'anthropic-version',
  'anthropic-beta',
  'openai-beta',
  'x-goog-api-client',
  'http-referer',
  'x-title',
  'x-amzn-bedrock-accept',
])

/** Of one connection, about the account, or a secret: none of them comes back. */
const droppedHeaders = new Set([
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
  'cookie',
  'set-cookie',
  'authorization',
  'x-api-key',
  'x-goog-api-key',
  'x-amz-security-token',
  'anthropic-organization-id',
  'openai-organization',
  'openai-project',
])

const textOf = (value: string | string[]): string => (Array.isArray(value) ? value.join(', ') : value)

export function sentOn(headers: IncomingHttpHeaders): Record<string, string> {
  const passed: Record<string, string> = {}
  for (const [name, value] of Object.entries(headers))
    if (value !== undefined && (sent.has(name) || name.startsWith('x-stainless-')))
      passed[name] = textOf(value)
  return passed
}

export function passedBack(headers: IncomingHttpHeaders): Record<string, string> {
  const named = new Set((headers.connection ?? '').split(',').map((name) => name.trim().toLowerCase()))
  const passed: Record<string, string> = {}
  for (const [name, value] of Object.entries(headers))
    if (value !== undefined && !droppedHeaders.has(name) && !named.has(name)) passed[name] = textOf(value)
  return passed
}

export function baseUrl(provider: ProviderName, credential: Credential): string {
  const base = credential.base_url ?? providers[provider].base_url
  if (!base)
    throw new Fault('invalid', `the credential for ${provider} has no base_url`, {
      hint: 'set base_url to the address of the server, for example http://127.0.0.1:11434/v1',
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
export type Request = {
  method: string
  path: string
  query: [string, string][]
  headers: IncomingHttpHeaders
  /** Its SHA-256 where it was worked out already. */
  body?: { bytes: Buffer; sha256: string | undefined }
}

/** Whether the hash of the body is part of what is sent. */
export const isSigned = (provider: ProviderName, credential: Credential): boolean =>
  provider === 'bedrock' && credential.access_key_id !== undefined

export function outgoing(provider: ProviderName, credential: Credential, request: Request): Outgoing {
  const { method, body } = request
  const url = new URL(baseUrl(provider, credential) + request.path)
  for (const [name, value] of request.query) url.searchParams.append(name, value)
  const headers: Record<string, string> = { ...sentOn(request.headers), 'accept-encoding': 'identity' }
  if (body) {
    headers['content-type'] = 'application/json'
    headers['content-length'] = String(body.bytes.length)
  }
  const key = credential.key.reveal()
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
    const content = body ? { body: body.bytes, sha256: body.sha256 } : { body: Buffer.alloc(0) }
    return { url, method, headers: sign({ method, url, headers, ...content }, signing, new Date()) }
  } else headers.authorization = `Bearer ${key}`
  return { url, method, headers }
}
