// The names under which droids and operators call a tool: its own, or the flat form of one action.
import type { Tool } from './tool.ts'

/** `project` with an `action`, or the flat form `project_list`; the door decides whether it may be used. */
export function unflatten<Args>(
  tools: Record<string, Tool>,
  name: string,
  args: Args,
): [string, Args | (Args & { action: string })] {
  if (Object.hasOwn(tools, name)) return [name, args]
  const owner = Object.values(tools).find((tool) => tool.unified && name.startsWith(`${tool.name}_`))
  return owner ? [owner.name, { ...args, action: name.slice(owner.name.length + 1) }] : [name, args]
}
