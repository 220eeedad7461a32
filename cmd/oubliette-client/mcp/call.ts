// Calls one tool from a shell: `oubliette-client call TOOL JSON`. Every droid may use its session's children, even without
// permission for any other tool: `session_message` spawns or continues a child, `session_events` reads its events.
import { randomUUID } from 'node:crypto'
import { Fault, toFault } from '../../../internal/fault.ts'
import { openLink } from './link.ts'
import { asFailure, asToolResult, createTools, type ToolResult } from './tools.ts'

const connectMs = 30_000
const childTools = ['session_message', 'session_events']

function argumentsOf(text: string | undefined): Record<string, unknown> {
  let value: unknown
  try {
    value = JSON.parse(text ?? '{}')
  } catch (error) {
    throw new Fault('invalid', `the arguments are not JSON: ${(error as Error).message}`)
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new Fault('invalid', 'the arguments must be a JSON object')
  return value as Record<string, unknown>
}

const print = (value: unknown) =>
  new Promise<void>((resolve) => {
    process.stdout.write(`${JSON.stringify(value)}\n`, () => resolve())
  })

export async function call(args: string[], env: NodeJS.ProcessEnv, signal: AbortSignal): Promise<number> {
  let result: ToolResult
  try {
    const link = openLink(env, signal, () => {})
    const tools = createTools(link, signal)
    const [name, json] = args
    if (name === undefined) {
      await print({ tools: await tools.list() })
      return 0
    }
    const parsed = argumentsOf(json)
    const how = { signal, patience_ms: connectMs }
    if (childTools.includes(name)) {
      // A request that is repeated after a lost connection must not spawn a second child.
      const once =
        name === 'session_message' && !('session_id' in parsed) ? { idempotency_key: randomUUID() } : {}
      result = asToolResult(await link.request(name, { ...once, ...parsed }, how))
    } else {
      const known = (await tools.list()).some((tool) => tool.name === name)
      result = await tools.call(known ? name : `oubliette_${name}`, parsed, how)
    }
  } catch (error) {
    result = asFailure(toFault(error))
  }
  await print(result.structuredContent ?? result)
  return result.isError ? 1 : 0
}
