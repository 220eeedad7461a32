// Factory's Droid, with a model of its user's own instead of Factory's.
import { Fault } from '../../fault.ts'
import type { Agent, AgentWish } from './agent.ts'
import { given, refuseToolLists } from './given.ts'

const kinds: Record<string, string> = { anthropic: 'anthropic', openai: 'openai' }

const settings = ({ name, url, key }: NonNullable<AgentWish['provider']>, model: string): string =>
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

export const droid: Agent = (wish) => {
  const { provider, model, reasoning_level, directory } = wish
  refuseToolLists('Factory Droid', wish)
  if (provider && model === undefined)
    throw new Fault('invalid', `Factory Droid needs the name of a model of ${provider.name}: set model`)
  const own = provider && model !== undefined
  return {
    // It wants to be logged in to Factory before it does anything; a model of one's own needs nothing from there.
    ...(own ? { env: { FACTORY_API_KEY: provider.key } } : {}),
    args: own ? ['--settings', `${directory}/droid-settings.json`] : [],
    ...(own ? { files: { 'droid-settings.json': settings(provider, model) } } : {}),
    // Over ACP it takes these from the session's options and not from its arguments.
    options: given({ model: own ? 'custom:oubliette' : model, thought_level: reasoning_level }),
  }
}
