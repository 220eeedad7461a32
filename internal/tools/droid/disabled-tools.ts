// Tools that a project disables for its droids. A name is one that a droid sees (`oubliette_token`, `app_greet`), one of
// ours without its prefix (`token`), one action of it (`session.spawn`, `oubliette_session_spawn`), or all tools of an upstream
// server (`mcp__github`).
import { Fault } from '../../fault.ts'
import type { ListedTool } from '../tool.ts'

const plain = (name: string) => name.replace(/^oubliette_/, '').replace('.', '_')

export function createDisabled(names: readonly string[]) {
  const ours = new Set(names.map(plain))
  const has = (tool: string, action?: string) =>
    ours.has(tool) || (action !== undefined && ours.has(`${tool}_${action}`))
  /** A caller's tool, by its whole name. */
  const hasCallers = (name: string) => names.includes(name)

  /** A tool of an upstream server, by its whole name or with all of its server. */
  const hasUpstreams = (name: string) =>
    names.includes(name) || names.some((one) => one.startsWith('mcp__') && name.startsWith(`${one}__`))

  /** The tool with its enabled actions; undefined if none is. */
  function rest(tool: ListedTool): ListedTool | undefined {
    if (has(tool.name)) return undefined
    const properties = tool.inputSchema.properties as { action?: { enum?: string[] } } | undefined
    const actions = properties?.action?.enum
    const left = actions?.filter((action) => !has(tool.name, action))
    if (!actions || left?.length === actions.length) return tool
    if (left?.length === 0) return undefined
    const action = { ...properties?.action, enum: left }
    return { ...tool, inputSchema: { ...tool.inputSchema, properties: { ...properties, action } } }
  }

  return {
    has,
    hasCallers,
    hasUpstreams,
    /** Throws if the call is of a disabled tool. `caller_tool` calls the tool of a caller that `name` names. */
    refuse({ title, tool, name }: { title?: string; tool: string; name: string }): void {
      const of_caller = tool === 'caller_tool'
      if (of_caller ? hasCallers(name) : has(tool, name))
        throw new Fault('forbidden', `the project disables ${of_caller ? name : title} for its droids`)
    },
    without: (listed: readonly ListedTool[]): readonly ListedTool[] =>
      ours.size === 0 ? listed : listed.map(rest).filter((tool) => tool !== undefined),
  }
}
