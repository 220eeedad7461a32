// The model providers we know, as a table: where they are, which of their paths a droid may use, how a key is shown to
// them, and in which shape they tell errors. What is not here cannot be reached.

import { type ModelProvider, modelProviders } from '../config-models.ts'

export const providerNames = modelProviders
export type ProviderName = ModelProvider

/** The shape of a provider's errors. */
export type Dialect = 'anthropic' | 'openai' | 'gemini' | 'bedrock'

export type Provider = {
  dialect: Dialect
  /** Without one, a credential has to say where. `{region}` is the credential's. */
  base_url?: string
  /** Where the API begins below the base, when agents disagree on whether it is part of it. */
  prefix?: string
  /** Method and path, after the prefix. */
  paths: RegExp
}

// A model's name is one segment, an owner and a name at some, or escaped.
const model = '[A-Za-z0-9._:@%~-]+'

const openai: Pick<Provider, 'dialect' | 'prefix' | 'paths'> = {
  dialect: 'openai',
  prefix: '/v1',
  paths: new RegExp(
    `^(?:POST /(?:chat/completions|completions|embeddings|responses(?:/compact|/input_tokens)?)|GET /models(?:/${model}){0,2})$`,
  ),
}

export const providers: Record<ProviderName, Provider> = {
  anthropic: {
    dialect: 'anthropic',
    base_url: 'https://api.anthropic.com',
    paths: new RegExp(`^(?:POST /v1/messages(?:/count_tokens)?|GET /v1/models(?:/${model})?)$`),
  },
  openai: { ...openai, base_url: 'https://api.openai.com/v1' },
  gemini: {
    dialect: 'gemini',
    base_url: 'https://generativelanguage.googleapis.com',
    paths: new RegExp(
      `^(?:POST /v1(?:beta)?/models/${model}:(?:generateContent|streamGenerateContent|countTokens|embedContent|batchEmbedContents)|GET /v1(?:beta)?/models(?:/${model})?)$`,
    ),
  },
  openrouter: { ...openai, base_url: 'https://openrouter.ai/api/v1' },
  'openai-compatible': openai,
  bedrock: {
    dialect: 'bedrock',
    base_url: 'https://bedrock-runtime.{region}.amazonaws.com',
    paths: new RegExp(
      `^POST /model/${model}/(?:invoke|invoke-with-response-stream|converse|converse-stream|count-tokens)$`,
    ),
  },
}

export const isProvider = (name: string): name is ProviderName =>
  (providerNames as readonly string[]).includes(name)

/** What a droid asked for, as the provider's own path below the base; undefined if it is none of those allowed. */
export function allowedPath(provider: Provider, method: string, path: string): string | undefined {
  const { prefix, paths } = provider
  const below = prefix && path.startsWith(`${prefix}/`) ? path.slice(prefix.length) : path
  return paths.test(`${method} ${below}`) ? below : undefined
}
