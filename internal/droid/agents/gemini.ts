// Gemini CLI. What holds for every session is in its image (it trusts system settings only if they are root's); which
// tools a session has is a policy of its own.
import { Fault } from '../../fault.ts'
import type { Agent } from './agent.ts'
import { keepHistory } from './gemini-history.ts'
import { given } from './given.ts'

const rule = (toolName: string, decision: string, priority: number) =>
  `[[rule]]\ntoolName = ${JSON.stringify(toolName)}\ndecision = "${decision}"\npriority = ${priority}\n`

/** A tool that is denied is not even offered to the model. */
const policy = (allowed: string[], disallowed: string[]): string =>
  [
    ...(allowed.length > 0 ? [rule('*', 'deny', 900)] : []),
    ...allowed.map((name) => rule(name, 'ask_user', 950)),
    ...disallowed.map((name) => rule(name, 'deny', 990)),
  ].join('\n')

export const gemini: Agent = (wish) => {
  const { provider, model, tools_allowed, tools_disallowed, directory, home, resume } = wish
  if (wish.reasoning_level !== undefined)
    throw new Fault('invalid', 'Gemini CLI cannot be told how hard to think: leave reasoning_level out')
  const limited = tools_allowed.length + tools_disallowed.length > 0
  return {
    env: {
      ...(provider ? { GEMINI_API_KEY: provider.key, GOOGLE_GEMINI_BASE_URL: provider.url } : {}),
      ...given({ GEMINI_MODEL: model }),
    },
    ...(resume === undefined ? {} : { before: () => keepHistory(home, resume) }),
    ...(provider ? { authenticate: 'gemini-api-key' } : {}),
    ...(limited
      ? {
          args: ['--policy', `${directory}/gemini-policy.toml`],
          files: { 'gemini-policy.toml': policy(tools_allowed, tools_disallowed) },
        }
      : {}),
  }
}
