// Gemini CLI. Settings of all sessions are in its image (it trusts system settings only if root owns them); the tools of a
// session are a policy file.
import { existsSync, globSync, renameSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { Fault } from '../fault.ts'
import { type Agent, definedFields } from './agent.ts'

const rule = (toolName: string, decision: string, priority: number) =>
  `[[rule]]\ntoolName = ${JSON.stringify(toolName)}\ndecision = "${decision}"\npriority = ${priority}\n`

/** A denied tool is not offered to the model. */
const policy = (allowed: string[], disallowed: string[]): string =>
  [
    ...(allowed.length > 0 ? [rule('*', 'deny', 900)] : []),
    ...allowed.map((name) => rule(name, 'ask_user', 950)),
    ...disallowed.map((name) => rule(name, 'deny', 990)),
  ].join('\n')

const impossibleMinute = '1970-01-01T00-00'

/**
 * Gemini CLI names the file of a conversation by the minute in which it began. When it resumes one, it first opens a new
 * file, and within the same minute that is the same file: the conversation is overwritten before it is read. So the file
 * is renamed to a minute that cannot occur.
 */
export function keepHistory(home: string, agent_session_id: string): void {
  const id = agent_session_id.slice(0, 8)
  if (!/^[0-9a-f]{8}$/.test(id)) return
  const [first] = globSync(join(home, '.gemini/tmp/*/chats', `session-*-${id}.jsonl`)).sort()
  if (first === undefined) return
  const kept = join(dirname(first), `session-${impossibleMinute}-${id}.jsonl`)
  // The renamed file is the one that is read and written; later files of the same id are empty.
  if (!existsSync(kept)) renameSync(first, kept)
}

export const gemini: Agent = {
  command: 'gemini',
  args: ['--acp'],
  providers: ['gemini'],
  memory_mb: 330,
  setUp(request) {
    const { provider, model, tools_allowed, tools_disallowed, directory, home, resume } = request
    if (request.reasoning_level !== undefined)
      throw new Fault('invalid', 'Gemini CLI does not support reasoning levels: omit reasoning_level')
    const limited = tools_allowed.length + tools_disallowed.length > 0
    return {
      env: {
        ...(provider ? { GEMINI_API_KEY: provider.key, GOOGLE_GEMINI_BASE_URL: provider.url } : {}),
        ...definedFields({ GEMINI_MODEL: model }),
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
  },
}
