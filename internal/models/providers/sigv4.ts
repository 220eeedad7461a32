// Amazon's signature, version 4, for requests whose body is known. Pure.
import { createHash, createHmac } from 'node:crypto'

export type SigningKey = {
  access_key_id: string
  secret_access_key: string
  session_token?: string
  region: string
  service: string
}
export type Signable = {
  method: string
  /** Absolute; its path is as it goes over the wire. */
  url: URL
  headers: Record<string, string>
  body: Uint8Array
  /** Of the body, if it is known already. */
  sha256?: string | undefined
}

const sha256 = (data: string | Uint8Array): string => createHash('sha256').update(data).digest('hex')
const hmac = (key: string | Buffer, data: string): Buffer => createHmac('sha256', key).update(data).digest()

/** Stricter than encodeURIComponent. */
const escaped = (text: string): string =>
  encodeURIComponent(text).replace(/[!'()*]/g, (it) => `%${it.charCodeAt(0).toString(16).toUpperCase()}`)

const canonicalQuery = (url: URL): string =>
  [...url.searchParams]
    .map(([name, value]) => `${escaped(name)}=${escaped(value)}`)
    .sort((a, b) => (a < b ? -1 : 1))
    .join('&')

/** Each segment escaped once more than it is in the URL, as every service but S3 wants it. */
const canonicalPath = (url: URL): string => url.pathname.split('/').map(escaped).join('/')

/** The headers to send: the given ones and those of the signature. */
export function sign(request: Signable, key: SigningKey, now: Date): Record<string, string> {
  const time = now.toISOString().replace(/[-:]|\.\d{3}/g, '')
  const day = time.slice(0, 8)
  const headers: Record<string, string> = {
    ...request.headers,
    host: request.url.host,
    'x-amz-date': time,
    ...(key.session_token ? { 'x-amz-security-token': key.session_token } : {}),
  }
  const entries = Object.entries(headers)
    .map(([name, value]) => [name.toLowerCase(), value.trim().replace(/\s+/g, ' ')] as const)
    .sort(([a], [b]) => (a < b ? -1 : 1))
  const names = entries.map(([name]) => name).join(';')
  const canonical = [
    request.method,
    canonicalPath(request.url),
    canonicalQuery(request.url),
    ...entries.map(([name, value]) => `${name}:${value}`),
    '',
    names,
    request.sha256 ?? sha256(request.body),
  ].join('\n')
  const scope = `${day}/${key.region}/${key.service}/aws4_request`
  const to_sign = ['AWS4-HMAC-SHA256', time, scope, sha256(canonical)].join('\n')
  const signing = [key.region, key.service, 'aws4_request'].reduce<Buffer>(
    (made, part) => hmac(made, part),
    hmac(`AWS4${key.secret_access_key}`, day),
  )
  const signature = hmac(signing, to_sign).toString('hex')
  return {
    ...headers,
    authorization: `AWS4-HMAC-SHA256 Credential=${key.access_key_id}/${scope}, SignedHeaders=${names}, Signature=${signature}`,
  }
}
