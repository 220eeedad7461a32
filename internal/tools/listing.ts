// What `tools/list` shows to a scope: the tools and actions that it could ever use.
import { couldAllow, type Scope } from '../auth/scope.ts'
import { listedInput } from './listed-schema.ts'
import type { Action, ListedTool, Tool } from './tool.ts'

/** Hints that equal the default of the protocol are left out; most tools run agents, so their world is open. */
function hintsOf(actions: Action[], scope: Scope): Pick<ListedTool, 'annotations'> {
  const reads = ({ needs, destructive }: Action) => needs.endsWith(':read') && !destructive
  if (scope.read_only || actions.every(reads)) return { annotations: { readOnlyHint: true } }
  const annotations = {
    ...(actions.some((action) => action.destructive) ? {} : { destructiveHint: false }),
    ...(actions.every((action) => action.idempotent) ? { idempotentHint: true } : {}),
  }
  return Object.keys(annotations).length > 0 ? { annotations } : {}
}

function listTool(tool: Tool, scope: Scope): ListedTool | undefined {
  const actions = Object.entries(tool.actions).filter(([, action]) => couldAllow(scope, action.needs))
  if (actions.length === 0) return undefined
  const hidden = [...tool.unlisted, ...(scope.kind === 'admin' ? [] : tool.admin_fields)]
  return {
    name: tool.name,
    description: tool.brief ?? tool.about,
    inputSchema: listedInput(tool, actions, hidden),
    outputSchema: { type: 'object' },
    ...hintsOf(
      actions.map(([, action]) => action),
      scope,
    ),
  }
}

/** Prepared once for each of the four kinds of scope: a listing does not depend on which project it is. */
export function createListing(tools: Record<string, Tool>): (scope: Scope) => readonly ListedTool[] {
  const prepared = new Map<string, readonly ListedTool[]>()
  return (scope) => {
    const key = `${scope.kind}:${scope.read_only}`
    const known = prepared.get(key)
    if (known) return known
    const listed = Object.values(tools)
      .map((tool) => listTool(tool, scope))
      .filter((tool) => tool !== undefined)
    prepared.set(key, listed)
    return listed
  }
}
