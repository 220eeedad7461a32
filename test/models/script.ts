// A script travels in the prompt itself, so the scripted model remembers nothing: what is asked again, by a retry, a
// new process or after a crash, gets the same answer. The last script of a conversation counts, and the place in it is
// the number of answers that were given since.
import { randomUUID } from 'node:crypto'

type Call = { call: string; args: Record<string, unknown> }
export type Step =
  | { say: string; every_ms?: number }
  | { think: string; say: string }
  | Call
  /** The first of these tools that the agent has. */
  | { any: Call[] }
  /** Calls this until the agent has a tool of that name; for those that find their tools by searching. */
  | { until: string; search: Call }
  | { error: number; message?: string; times?: number; then?: string }
  /** The connection breaks in the middle of the answer, so many times. */
  | { break_off: string; times: number }

export type Part =
  | { type: 'text'; text: string }
  | { type: 'thought'; text: string }
  | { type: 'call'; id: string; name: string; args: Record<string, unknown> }

/** What all protocols have in common. */
export type Conversation = {
  model: string
  stream: boolean
  tools: string[]
  /** In order: what the user's side said (tool results are empty text), and that an answer was given. */
  turns: { role: 'user' | 'assistant'; text: string }[]
  /** The results of tools, in order, as the agent passed them on. */
  results: string[]
}

export type Answer =
  | { parts: Part[]; every_ms: number; break_off?: boolean }
  | { error: number; message: string }

const pattern = /\[\[script (.*?) script\]\]/gs

export const prompt = (steps: Step[], words = 'Please do this.'): string =>
  `${words} [[script ${JSON.stringify(steps)} script]]`

/** What is said along with a search, so that it can be told from the steps of a script, however often it takes. */
const searching = 'Let me look for'

function place(turns: Conversation['turns']): { steps: Step[]; at: number; text: string } | undefined {
  for (let index = turns.length - 1; index >= 0; index--) {
    const { role, text } = turns[index]!
    const found = role === 'user' ? [...text.matchAll(pattern)].at(-1)?.[1] : undefined
    if (found === undefined) continue
    const at = turns
      .slice(index)
      .filter((turn) => turn.role === 'assistant' && !turn.text.startsWith(searching)).length
    return { steps: JSON.parse(found) as Step[], at, text: found }
  }
  return undefined
}

/** Agents put the name of the MCP server before a tool's, each in its own way. */
const named = (tools: string[], wanted: string): string | undefined =>
  tools.find((name) => name === wanted) ?? tools.find((name) => name.endsWith(wanted))

const text = (said: string, every_ms = 0): Answer => ({ parts: [{ type: 'text', text: said }], every_ms })

export function createActor() {
  const attempts = new Map<string, number>()
  const count = (key: string): number => {
    attempts.set(key, (attempts.get(key) ?? 0) + 1)
    return attempts.get(key)!
  }

  function call(tools: string[], wanted: Call[]): Answer {
    for (const { call: name, args } of wanted) {
      const tool = named(tools, name)
      if (tool)
        return {
          parts: [{ type: 'call', id: `call_${randomUUID().slice(0, 8)}`, name: tool, args }],
          every_ms: 0,
        }
    }
    return text(
      `I have none of the tools ${wanted.map((it) => it.call).join(', ')}; I have ${tools.join(', ')}`,
    )
  }

  return function answer({ tools, turns }: Conversation): Answer {
    // Titles and summaries, which agents ask for on the side, come without tools.
    const found = tools.length === 0 ? undefined : place(turns)
    const missing = found?.steps.find((it) => 'until' in it && !named(tools, it.until))
    if (missing && 'until' in missing) {
      const said: Part = { type: 'text', text: `${searching} ${missing.until}.` }
      const asked = call(tools, [missing.search])
      return 'parts' in asked ? { ...asked, parts: [said, ...asked.parts] } : asked
    }
    const step = found?.steps.filter((it) => !('until' in it))[found.at]
    if (!found || !step || 'until' in step) return text('All done.')
    const key = `${found.at} ${found.text}`
    if ('error' in step) {
      const refused = count(key) <= (step.times ?? Number.POSITIVE_INFINITY)
      return refused
        ? { error: step.error, message: step.message ?? 'scripted' }
        : text(step.then ?? 'At last.')
    }
    if ('break_off' in step)
      return {
        ...(text(step.break_off, 5) as { parts: Part[]; every_ms: number }),
        break_off: count(key) <= step.times,
      }
    if ('any' in step) return call(tools, step.any)
    if ('call' in step) return call(tools, [step])
    if ('think' in step)
      return {
        parts: [
          { type: 'thought', text: step.think },
          { type: 'text', text: step.say },
        ],
        every_ms: 0,
      }
    return text(step.say, step.every_ms)
  }
}
