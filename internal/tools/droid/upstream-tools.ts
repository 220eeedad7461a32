// Tools of upstream servers as a droid sees them: the list, or a search in it for agents that load every definition when there
// are many. All calls pass the door, the calls behind `call_tool` too.
import { Fault } from '../../fault.ts'
import type { Managers } from '../../manager/managers.ts'
import type { Identity } from '../../manager/session/identity.ts'
import type { Offer } from '../../manager/upstream/catalog.ts'
import { prefix } from '../../manager/upstream/names.ts'
import { upstreamToolCall, upstreamToolSearch } from '../declarations/internal.ts'
import type { Door } from '../door.ts'
import type { CallContext } from '../tool.ts'
import { createDisabled } from './disabled-tools.ts'

type Listed = { name: string; inputSchema: Record<string, unknown>; [key: string]: unknown }
type Params = { tool: string; arguments: Record<string, unknown>; call_id?: string | undefined }

const pair: Listed[] = [
  {
    name: 'find_tools',
    description:
      'Search the tools of connected servers by words of their name, purpose or parameters. Returns the best matches with their input schemas; call one with call_tool.',
    inputSchema: {
      type: 'object',
      properties: {
        query: { type: 'string', description: 'Words, for example "create issue"' },
        server: { type: 'string', description: 'Only this server' },
        limit: { type: 'integer', description: '≤20; default 5' },
      },
      required: ['query'],
    },
    annotations: { readOnlyHint: true },
  },
  {
    name: 'call_tool',
    description: 'Call a tool that find_tools returned.',
    inputSchema: {
      type: 'object',
      properties: {
        tool: { type: 'string', description: 'Its name, mcp__…' },
        arguments: { type: 'object', description: 'As its inputSchema says' },
      },
      required: ['tool'],
    },
  },
]
const searching = new Set(pair.map(({ name }) => name))

/** The definition as the upstream sent it, under its visible name. */
const shown = ({ tool }: Offer): Listed => {
  const { title, description, inputSchema, outputSchema, annotations } = tool.definition
  const given = Object.entries({ title, description, outputSchema, annotations })
  return {
    ...Object.fromEntries(given.filter(([, value]) => value !== undefined)),
    name: tool.visible_name,
    inputSchema: inputSchema as Record<string, unknown>,
  }
}

export function createUpstreamTools(managers: () => Managers) {
  async function call(
    door: Door,
    identity: Identity,
    context: CallContext,
    params: Params,
  ): Promise<unknown> {
    const { project_id, autonomy } = identity
    const { offers } = await managers().gateway.catalogOf(project_id)
    const { tool, arguments: args, call_id } = params
    const server = offers.get(tool)?.upstream.name ?? tool.slice(prefix.length).split('__')[0] ?? ''
    return await door.run(upstreamToolCall, context, {
      project_id,
      server,
      tool,
      arguments: args,
      autonomy,
      ...(call_id ? { call_id } : {}),
    })
  }

  return {
    has: (tool: string): boolean => tool.startsWith(prefix) || searching.has(tool),
    async list({ project_id, droid, disabled_tools }: Identity): Promise<Listed[]> {
      const { gateway } = managers()
      const { offers } = await gateway.catalogOf(project_id)
      const { hasUpstreams } = createDisabled(disabled_tools)
      const tools = [...offers.values()].filter(({ tool }) => !hasUpstreams(tool.visible_name))
      return tools.length > gateway.find_tools_above && gateway.needsSearch(droid) ? pair : tools.map(shown)
    },
    async call(door: Door, identity: Identity, context: CallContext, params: Params): Promise<unknown> {
      if (params.tool === 'find_tools') {
        const { project_id } = identity
        const found = await door.run(upstreamToolSearch, context, {
          ...params.arguments,
          project_id,
        } as never)
        return {
          tools: found.map((offer) => {
            const { name, description, inputSchema } = shown(offer)
            return { name, server: offer.upstream.name, description, inputSchema }
          }),
        }
      }
      if (params.tool !== 'call_tool') return await call(door, identity, context, params)
      const { tool, arguments: args = {} } = params.arguments as { tool?: unknown; arguments?: unknown }
      if (typeof tool !== 'string' || !tool.startsWith(prefix))
        throw new Fault('invalid', 'call_tool needs "tool": a name that find_tools returned')
      if (typeof args !== 'object' || args === null || Array.isArray(args))
        throw new Fault('invalid', 'call_tool: "arguments" must be an object')
      return await call(door, identity, context, {
        ...params,
        tool,
        arguments: args as Record<string, unknown>,
      })
    },
  }
}
