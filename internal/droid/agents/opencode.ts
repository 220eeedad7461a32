// OpenCode. Its whole config can come in the environment; it asks for permission only where its config says so.
import { Fault } from '../../fault.ts'
import type { Agent, AgentWish } from './agent.ts'
import { given } from './given.ts'

type Provider = NonNullable<AgentWish['provider']>

/** Its names for providers, and where below our address each of its clients expects the API. */
const known: Record<string, { id: string; path: string; npm?: string }> = {
  anthropic: { id: 'anthropic', path: '/v1' },
  openai: { id: 'openai', path: '/v1' },
  openrouter: { id: 'openrouter', path: '/v1' },
  gemini: { id: 'google', path: '/v1beta' },
  'openai-compatible': { id: 'oubliette', path: '/v1', npm: '@ai-sdk/openai-compatible' },
}

// Else it would leave them out without a word.
const takesPictures = { attachment: true, modalities: { input: ['text', 'image'], output: ['text'] } }

function providerConfig({ name, url, key }: Provider, model: string | undefined) {
  const { id, path, npm } = known[name] ?? known['openai-compatible']!
  if (npm && model === undefined)
    throw new Fault('invalid', `OpenCode needs the name of a model of ${name}: set model`)
  return {
    enabled_providers: [id],
    provider: {
      [id]: {
        ...(npm ? { npm, name: 'Oubliette' } : {}),
        options: { baseURL: `${url}${path}`, apiKey: key },
        // One that it does not know of is a model all the same.
        ...(model === undefined ? {} : { models: { [model]: takesPictures } }),
      },
    },
    ...(model === undefined ? {} : { model: `${id}/${model}`, small_model: `${id}/${model}` }),
  }
}

export const opencode: Agent = (wish) => {
  const { provider, model, reasoning_level, autonomy, tools_allowed, tools_disallowed } = wish
  const asks = { edit: 'ask', bash: 'ask', webfetch: 'ask' }
  return {
    env: {
      OPENCODE_CONFIG_CONTENT: JSON.stringify({
        autoupdate: false,
        share: 'disabled',
        ...(provider ? providerConfig(provider, model) : {}),
        ...(autonomy === 'high' ? {} : { permission: asks }),
        tools: Object.fromEntries([
          ...(tools_allowed.length > 0 ? [['*', false]] : []),
          ...tools_allowed.map((name) => [name, true]),
          ...tools_disallowed.map((name) => [name, false]),
        ]),
      }),
    },
    options: given({ thought_level: reasoning_level }),
    // Two that make its database at the same time end each other: "Failed query: CREATE TABLE …", exit code 1.
    first_alone: true,
  }
}
