// The tools of this session as a droid sees them: Oubliette's own with the prefix `oubliette_`, tools of callers and upstreams
// under the names they already have.
import { Fault } from '../../../internal/fault.ts'
import type { Progress } from '../../../internal/protocol/peer.ts'
import type { Link } from './link.ts'

type Tool = {
  name: string
  inputSchema: { type: 'object'; [key: string]: unknown }
  [key: string]: unknown
}
export type ToolResult = {
  content: unknown[]
  structuredContent?: unknown
  isError?: boolean
  [key: string]: unknown
}
type Route = { method: 'oubliette_call_tool' | 'caller_tool'; tool: string }

const connectMs = 20_000

export interface Tools {
  /** The current list. Concurrent calls share one request; calls during a request share the next one. */
  list(): Promise<Tool[]>
  call(
    name: string,
    args: Record<string, unknown>,
    options: { signal: AbortSignal; patience_ms?: number; on_progress?: (update: Progress) => void },
  ): Promise<ToolResult>
}

/** Converts the server's answer, which is a tool result or plain JSON, to a tool result. */
export function asToolResult(answer: unknown): ToolResult {
  if (typeof answer === 'object' && answer !== null && Array.isArray((answer as ToolResult).content))
    return answer as ToolResult
  const text = typeof answer === 'string' ? answer : JSON.stringify(answer ?? null)
  const structured = typeof answer === 'object' && answer !== null && !Array.isArray(answer)
  return { content: [{ type: 'text', text }], ...(structured ? { structuredContent: answer } : {}) }
}

export function asFailure(fault: Fault): ToolResult {
  const error = fault.shape()
  const text = error.hint ? `${error.message} (${error.hint})` : error.message
  return { content: [{ type: 'text', text }], structuredContent: { error }, isError: true }
}

/** The search in the tools of upstream servers, instead of their list. */
const searching = ['find_tools', 'call_tool']

const visibleName = (own: string) =>
  own.startsWith('mcp__') || own.startsWith('oubliette_') || searching.includes(own)
    ? own
    : `oubliette_${own}`

/** `signal` cancels open requests when the link ends. */
export function createTools(link: Link, signal: AbortSignal): Tools {
  let routes = new Map<string, Route>()
  let asking: Promise<Tool[]> | undefined
  let next: Promise<Tool[]> | undefined

  function list(): Promise<Tool[]> {
    if (!asking) {
      asking = ask().finally(() => {
        asking = undefined
      })
      return asking
    }
    const begin = () => {
      next = undefined
      return list()
    }
    next ??= asking.then(begin, begin)
    return next
  }

  async function ask(): Promise<Tool[]> {
    const toolsOf = async (method: string) => {
      const answer = (await link.request(method, {}, { signal, patience_ms: connectMs })) as {
        tools?: Tool[]
      }
      return answer.tools ?? []
    }
    const [own, callers] = await Promise.all([toolsOf('oubliette_tools'), toolsOf('caller_tools')])
    const found = new Map<string, Route>()
    const tools: Tool[] = []
    for (const tool of own) {
      const name = visibleName(tool.name)
      found.set(name, { method: 'oubliette_call_tool', tool: tool.name })
      tools.push({ ...tool, name })
    }
    for (const tool of callers) {
      // A caller's tool never replaces one of Oubliette's own.
      if (found.has(tool.name)) continue
      found.set(tool.name, { method: 'caller_tool', tool: tool.name })
      tools.push(tool)
    }
    routes = found
    return tools
  }

  /** `oubliette_project_list` means `oubliette_project` with that action; the server splits the name. */
  function flat(name: string): Route | undefined {
    const owner = [...routes].find(
      ([known, { method }]) => method === 'oubliette_call_tool' && name.startsWith(`${known}_`),
    )
    return owner && { ...owner[1], tool: `${owner[1].tool}${name.slice(owner[0].length)}` }
  }

  return {
    list,
    async call(name, args, options) {
      if (!routes.has(name)) await list()
      const route = routes.get(name) ?? flat(name)
      if (!route)
        throw new Fault('not_found', `no tool "${name}"`, {
          hint: `available tools: ${[...routes.keys()].join(', ')}`,
        })
      return asToolResult(await link.request(route.method, { tool: route.tool, arguments: args }, options))
    },
  }
}
