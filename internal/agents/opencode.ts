// OpenCode. Its whole config is passed in the environment; it asks for permission only where the config requires it.
import { Fault } from '../fault.ts'
import { type Agent, type AgentRequest, definedFields } from './agent.ts'

type Provider = NonNullable<AgentRequest['provider']>

/** OpenCode's provider ids, and the path below the base URL where each of its clients expects the API. */
const known: Record<string, { id: string; path: string; npm?: string }> = {
  anthropic: { id: 'anthropic', path: '/v1' },
  openai: { id: 'openai', path: '/v1' },
  openrouter: { id: 'openrouter', path: '/v1' },
  gemini: { id: 'google', path: '/v1beta' },
  'openai-compatible': { id: 'oubliette', path: '/v1', npm: '@ai-sdk/openai-compatible' },
}

// Otherwise it drops images without an error.
const imageInput = { attachment: true, modalities: { input: ['text', 'image'], output: ['text'] } }

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
        // Declared, because OpenCode may not know the model.
        ...(model === undefined ? {} : { models: { [model]: imageInput } }),
      },
    },
    ...(model === undefined ? {} : { model: `${id}/${model}`, small_model: `${id}/${model}` }),
  }
}

export const opencode: Agent = {
  command: 'opencode',
  args: ['acp'],
  providers: ['anthropic', 'openai', 'openrouter', 'openai-compatible', 'gemini'],
  memory_mb: 480,
  setUp({ provider, model, reasoning_level, autonomy, tools_allowed, tools_disallowed }) {
    const permission = { edit: 'ask', bash: 'ask', webfetch: 'ask' }
    return {
      env: {
        OPENCODE_CONFIG_CONTENT: JSON.stringify({
          autoupdate: false,
          share: 'disabled',
          ...(provider ? providerConfig(provider, model) : {}),
          ...(autonomy === 'high' ? {} : { permission }),
          tools: Object.fromEntries([
            ...(tools_allowed.length > 0 ? [['*', false]] : []),
            ...tools_allowed.map((name) => [name, true]),
            ...tools_disallowed.map((name) => [name, false]),
          ]),
        }),
      },
      options: definedFields({ thought_level: reasoning_level }),
      // Concurrent first starts that create its database fail: "Failed query: CREATE TABLE …", exit code 1.
      first_alone: true,
    }
  },
}
