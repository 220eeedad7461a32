// The supported model providers as a table: their addresses, the paths that a droid may use, and the shape of their errors.
// Nothing else can be reached. A path is decoded and compared segment by segment, and the path that is sent is rebuilt from the
// segments, so that nothing of the droid's spelling remains.

import { Fault } from '../../fault.ts'
import { type ModelProvider, modelProviders } from '../../model-providers.ts'
import type { Endpoint } from '../inspect/inspect.ts'

export const providerNames = modelProviders
export type ProviderName = ModelProvider

/** The shape of a provider's errors. */
export type Dialect = 'anthropic' | 'openai' | 'gemini' | 'bedrock'

/** `{model}` is a model's name, `{owner}` one before it. */
type Path = { method: 'GET' | 'POST'; path: string; endpoint?: Endpoint; free?: true }

export type Provider = {
  dialect: Dialect
  /** Without one, a credential has to say where. `{region}` is the credential's. */
  base_url?: string
  /** Where the API begins below the base, when agents disagree on whether it is part of it. */
  prefix?: string
  paths: Path[]
  /** Parameters that are passed on. */
  query: string[]
}

export type Route = {
  /** Below the base, as it is sent. */
  path: string
  /** None: there is no body. */
  endpoint: Endpoint | undefined
  /** The provider charges nothing for it. */
  free: boolean
  model: string | undefined
}

const post = (path: string, endpoint: Endpoint): Path => ({ method: 'POST', path, endpoint })
const count = (path: string, endpoint: Endpoint): Path => ({ method: 'POST', path, endpoint, free: true })
const get = (path: string): Path => ({ method: 'GET', path, free: true })

const openai: Pick<Provider, 'dialect' | 'prefix' | 'paths' | 'query'> = {
  dialect: 'openai',
  prefix: 'v1',
  paths: [
    post('chat/completions', 'chat'),
    post('completions', 'completions'),
    post('embeddings', 'embeddings'),
    post('responses', 'responses'),
    post('responses/compact', 'responses'),
    count('responses/input_tokens', 'responses'),
    get('models'),
    get('models/{model}'),
    get('models/{owner}/{model}'),
  ],
  query: ['api-version', 'client_version'],
}

export const providers: Record<ProviderName, Provider> = {
  anthropic: {
    dialect: 'anthropic',
    base_url: 'https://api.anthropic.com',
    paths: [
      post('v1/messages', 'messages'),
      count('v1/messages/count_tokens', 'messages'),
      get('v1/models'),
      get('v1/models/{model}'),
    ],
    query: ['beta', 'limit', 'after_id', 'before_id'],
  },
  openai: { ...openai, base_url: 'https://api.openai.com/v1' },
  gemini: {
    dialect: 'gemini',
    base_url: 'https://generativelanguage.googleapis.com',
    paths: ['v1', 'v1beta'].flatMap((version) => [
      post(`${version}/models/{model}:generateContent`, 'generate'),
      post(`${version}/models/{model}:streamGenerateContent`, 'generate'),
      count(`${version}/models/{model}:countTokens`, 'count'),
      post(`${version}/models/{model}:embedContent`, 'embed'),
      post(`${version}/models/{model}:batchEmbedContents`, 'embed'),
      get(`${version}/models`),
      get(`${version}/models/{model}`),
    ]),
    query: ['alt', 'pageSize', 'pageToken'],
  },
  openrouter: { ...openai, base_url: 'https://openrouter.ai/api/v1' },
  'openai-compatible': openai,
  bedrock: {
    dialect: 'bedrock',
    base_url: 'https://bedrock-runtime.{region}.amazonaws.com',
    paths: [
      post('model/{model}/invoke', 'invoke'),
      post('model/{model}/invoke-with-response-stream', 'invoke'),
      post('model/{model}/converse', 'converse'),
      post('model/{model}/converse-stream', 'converse'),
      count('model/{model}/count-tokens', 'count_bedrock'),
    ],
    query: [],
  },
}

export const isProvider = (name: string): name is ProviderName =>
  (providerNames as readonly string[]).includes(name)

/** No dot at the beginning, no percent sign, no slash: nothing that a server could read as another path. */
const name = /^[A-Za-z0-9@~_][A-Za-z0-9._:@~+-]{0,199}$/
const arn =
  /^arn:aws[a-z-]*:bedrock:[a-z0-9-]*:\d*:(?:inference-profile|application-inference-profile|provisioned-model|custom-model-deployment|imported-model|foundation-model)\/[A-Za-z0-9._:-]{1,200}$/

/** Undefined if it is no name, also when it was encoded more than once. */
function decoded(segment: string): string | undefined {
  try {
    const text = decodeURIComponent(segment)
    return name.test(text) || arn.test(text) ? text : undefined
  } catch {
    // Not percent-encoding at all.
    return undefined
  }
}

/** A model's name with an action behind it is one segment of the path. */
const placeholder = /^\{(?:model|owner)\}(:[A-Za-z]+)?$/

/** The segment as it is sent, and the model in it; undefined if it does not fit. */
function fitted(wanted: string, given: string): { sent: string; model?: string } | undefined {
  const action = placeholder.exec(wanted)
  if (!action) return wanted === given ? { sent: given } : undefined
  const [, suffix = ''] = action
  if (!given.endsWith(suffix)) return undefined
  const model = given.slice(0, given.length - suffix.length)
  // What is left over of an action would be taken for a name.
  if (model === '' || (suffix !== '' && model.includes(':'))) return undefined
  return { sent: `${encodeURIComponent(model)}${suffix}`, model }
}

/** What a droid asked for, below its provider; undefined if it is none of the paths allowed. */
export function routeOf(provider: Provider, method: string, path: string): Route | undefined {
  const segments = path.split('/').slice(1).map(decoded)
  if (!path.startsWith('/') || segments.some((it) => it === undefined)) return undefined
  const given = segments as string[]
  const below = provider.prefix && given[0] === provider.prefix ? given.slice(1) : given
  for (const one of provider.paths) {
    const wanted = one.path.split('/')
    if (one.method !== method || wanted.length !== below.length) continue
    const fitting = wanted.map((part, at) => fitted(part, below[at]!))
    if (fitting.some((it) => it === undefined)) continue
    return {
      path: `/${fitting.map((it) => it!.sent).join('/')}`,
      endpoint: one.endpoint,
      free: one.free ?? false,
      model: fitting.map((it) => it!.model).findLast((it) => it !== undefined),
    }
  }
  return undefined
}

/** The parameters to pass on; `key` is meant for us, and one that is not known could change what is answered or counted. */
export function allowedQuery(provider: Provider, query: URLSearchParams): [string, string][] {
  const passed = new Map<string, string>()
  for (const [parameter, value] of query) {
    if (parameter === 'key') continue
    if (!provider.query.includes(parameter) || passed.has(parameter) || !/^[\w.=-]{1,200}$/.test(value))
      throw new Fault('invalid', `query parameter "${parameter.slice(0, 50)}" is not supported`)
    passed.set(parameter, value)
  }
  return [...passed]
}
