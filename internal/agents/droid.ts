// Factory's Droid, with a custom model instead of Factory's models.
import { Fault } from '../fault.ts'
import { type Agent, type AgentRequest, definedFields, refuseToolLists } from './agent.ts'

const kinds: Record<string, string> = { anthropic: 'anthropic', openai: 'openai' }

const settings = ({ name, url, key }: NonNullable<AgentRequest['provider']>, model: string): string =>
  JSON.stringify({
    customModels: [
      {
        id: 'custom:oubliette',
        model,
        displayName: model,
        baseUrl: name === 'anthropic' ? url : `${url}/v1`,
        apiKey: key,
        provider: kinds[name] ?? 'generic-chat-completion-api',
        maxOutputTokens: 16_384,
      },
    ],
  })

export const droid: Agent = {
  command: 'droid',
  args: ['exec', '--output-format', 'acp'],
  providers: ['anthropic', 'openai', 'openrouter', 'openai-compatible'],
  memory_mb: 260,
  setUp(request) {
    const { provider, model, reasoning_level, directory } = request
    refuseToolLists('Factory Droid', request)
    if (provider && model === undefined)
      throw new Fault('invalid', `Factory Droid needs the name of a model of ${provider.name}: set model`)
    const own = provider && model !== undefined
    return {
      // It requires a Factory login before it does anything; a custom model does not use it.
      ...(own ? { env: { FACTORY_API_KEY: provider.key } } : {}),
      args: own ? ['--settings', `${directory}/droid-settings.json`] : [],
      ...(own ? { files: { 'droid-settings.json': settings(provider, model) } } : {}),
      // Over ACP it reads these from the session's options, not from its arguments.
      options: definedFields({ model: own ? 'custom:oubliette' : model, thought_level: reasoning_level }),
    }
  },
}
