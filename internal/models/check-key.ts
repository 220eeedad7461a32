// Whether a provider accepts a key, by a request that costs nothing: the list of its models. Nothing of the answer is shown
// but its status, because an answer can repeat the key.
import { Agent as HttpAgent, type IncomingMessage, request as overHttp } from 'node:http'
import { Agent as HttpsAgent, request as overHttps } from 'node:https'
import type { Credential } from '../config/models.ts'
import { messageOf } from '../fault.ts'
import { outgoing } from './providers/outgoing.ts'
import type { ProviderName } from './providers/providers.ts'

export type KeyCheck = {
  /** `unclear`: the provider answered, but not about the key. `unchecked`: no request was sent. */
  outcome: 'accepted' | 'rejected' | 'unreachable' | 'unclear' | 'unchecked'
  detail: string
}

/** A request that needs the key and is free. Bedrock has none; OpenRouter lists its models without a key. */
const free: Partial<Record<ProviderName, string>> = {
  anthropic: '/v1/models',
  openai: '/models',
  'openai-compatible': '/models',
  openrouter: '/key',
  gemini: '/v1beta/models',
}
const answerBytes = 16 * 1024

async function bodyOf(incoming: IncomingMessage): Promise<string> {
  let text = ''
  for await (const chunk of incoming.setEncoding('utf8')) {
    text += chunk
    if (text.length > answerBytes) break
  }
  return text
}

async function send(provider: ProviderName, credential: Credential, path: string, signal: AbortSignal) {
  const to = outgoing(provider, credential, {
    method: 'GET',
    path,
    query: [],
    headers: provider === 'anthropic' ? { 'anthropic-version': '2023-06-01' } : {},
  })
  const how = { method: to.method, headers: to.headers, signal }
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>()
  const request =
    to.url.protocol === 'https:'
      ? overHttps(to.url, { ...how, agent: new HttpsAgent({ proxyEnv: process.env }) }, resolve)
      : overHttp(to.url, { ...how, agent: new HttpAgent({ proxyEnv: process.env }) }, resolve)
  request.on('error', reject).end()
  const incoming = await promise
  return { status: incoming.statusCode ?? 0, body: await bodyOf(incoming) }
}

function judge(status: number, body: string): KeyCheck {
  const detail = `HTTP ${status}`
  if (status >= 200 && status < 300) return { outcome: 'accepted', detail }
  // Gemini answers 400 to a key that it does not know.
  const isInvalid = status === 400 && /API_KEY_INVALID|api key not valid/i.test(body)
  if (status === 401 || status === 403 || isInvalid) return { outcome: 'rejected', detail }
  return { outcome: 'unclear', detail }
}

export async function checkKey(
  provider: ProviderName,
  credential: Credential,
  timeout_ms: number,
): Promise<KeyCheck> {
  const path = free[provider]
  if (!path) return { outcome: 'unchecked', detail: 'the provider has no request that costs nothing' }
  try {
    const { status, body } = await send(provider, credential, path, AbortSignal.timeout(timeout_ms))
    return judge(status, body)
  } catch (error) {
    const isLate = error instanceof Error && /^(Abort|Timeout)Error$/.test(error.name)
    return {
      outcome: 'unreachable',
      detail: isLate ? `no answer within ${timeout_ms / 1000} s` : messageOf(error),
    }
  }
}
