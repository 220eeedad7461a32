// The tools that a session or a token sees, by source, and running one of them.
import { z } from 'zod'
import { Fault } from '../../../fault.ts'
import type { Managers } from '../../../manager/managers.ts'
import { createDisabled } from '../../droid/disabled-tools.ts'
import { action, type ListedTool, type RunContext } from '../../tool.ts'
import { session_id } from '../session-fields.ts'

const sources = ['own', 'caller', 'upstream'] as const
type Seen = {
  name: string
  source: (typeof sources)[number]
  caller_id: string | null
  tool: Pick<ListedTool, 'description' | 'inputSchema' | 'annotations'> & { outputSchema?: object }
}

async function ofSession(
  { managers, door }: { managers: Managers; door: RunContext['door'] },
  session_id: string,
): Promise<Seen[]> {
  const { scope, disabled_tools, project_id } = await managers.identityOf(session_id)
  const disabled = createDisabled(disabled_tools)
  const own = scope ? disabled.without(door.listing(scope)) : []
  const callers = await managers.callerTools.offered(session_id)
  const { offers } = await managers.gateway.catalogOf(project_id)
  return [
    ...own.map((tool): Seen => ({ name: `oubliette_${tool.name}`, source: 'own', caller_id: null, tool })),
    ...callers
      .filter(({ name }) => !disabled.hasCallers(name))
      .map(({ name, caller, tool }): Seen => {
        const inputSchema = { ...tool.inputSchema, type: 'object' as const }
        return { name, source: 'caller', caller_id: caller.caller_id, tool: { ...tool, inputSchema } }
      }),
    ...[...offers.values()]
      .filter(({ tool }) => !disabled.hasCallers(tool.visible_name))
      .map(({ tool }): Seen => {
        const { description = '', inputSchema, annotations } = tool.definition
        const shown = {
          description: String(description),
          inputSchema: { ...(inputSchema as object), type: 'object' as const },
        }
        const name = tool.visible_name
        return {
          name,
          source: 'upstream',
          caller_id: null,
          tool: { ...shown, ...(annotations ? { annotations } : {}) },
        }
      }),
  ]
}

/** What a session sees, or without one the asking token itself. */
async function seenBy(context: RunContext, session_id: string | undefined): Promise<Seen[]> {
  if (session_id !== undefined) return await ofSession(context, session_id)
  const { door, caller, disabled_tools = [] } = context
  return createDisabled(disabled_tools)
    .without(door.listing(caller.scope))
    .map((tool) => ({ name: tool.name, source: 'own', caller_id: null, tool }))
}

const actionsOf = ({ inputSchema }: Seen['tool']): string[] | null => {
  const { action } = (inputSchema.properties ?? {}) as { action?: { enum?: string[] } }
  return action?.enum ?? null
}

/** The droid's name of one of our tools, and ours, are the same tool. */
const sameName = (one: string, other: string) =>
  one.replace(/^oubliette_/, '') === other.replace(/^oubliette_/, '')

const mostDescription = 500
const name = z.string().min(1).max(200)
const whose = session_id.optional().describe('Session whose tools are meant. Default: those of this token.')

export const toolActions = {
  tools: action({
    about:
      'List the tools that a session sees, by source: `own` by its api_scope, `caller` offered by its callers, `upstream` of MCP servers of its project. Without `session_id`: those of the asking token.',
    brief: 'List tools of a session or this token.',
    needs: 'admin:read',
    example: {},
    input: z.object({ session_id: whose }),
    output: z.object({
      tools: z.array(
        z.object({
          name: z.string(),
          source: z.enum(sources),
          caller_id: z.string().nullable(),
          actions: z.array(z.string()).nullable(),
          description: z.string(),
        }),
      ),
    }),
    run: async (context, { session_id }) => ({
      tools: (await seenBy(context, session_id)).map(({ tool, ...seen }) => ({
        ...seen,
        actions: seen.source === 'own' ? actionsOf(tool) : null,
        description: tool.description.slice(0, mostDescription).toWellFormed(),
      })),
    }),
  }),
  tool_schema: action({
    about: 'Get the description and the schemas of one tool, as the session or the asking token sees it.',
    brief: 'Get the schema of one tool.',
    needs: 'admin:read',
    example: { tool: 'project' },
    input: z.object({ tool: name.describe('Name of the tool.'), session_id: whose }),
    output: z.object({
      name: z.string(),
      source: z.enum(sources),
      description: z.string(),
      input_schema: z.looseObject({}),
      output_schema: z.looseObject({}).nullable(),
      annotations: z.looseObject({}).nullable(),
    }),
    run: async (context, { tool: asked, session_id }) => {
      const all = await seenBy(context, session_id)
      const found =
        all.find(({ name }) => name === asked) ??
        all.find(({ name, source }) => source === 'own' && sameName(name, asked))
      if (!found)
        throw new Fault('not_found', `no tool "${asked.slice(0, 80)}"`, {
          hint: 'diagnostics tools lists them',
        })
      const { description, inputSchema, outputSchema, annotations } = found.tool
      return {
        name: found.name,
        source: found.source,
        description,
        input_schema: inputSchema,
        output_schema: (outputSchema as Record<string, unknown> | undefined) ?? null,
        annotations: annotations ?? null,
      }
    },
  }),
  run_tool: action({
    about:
      'Run one tool of the server with the rights of the asking token and return its result; its error is the error of this call. Both calls are audited. `run_tool` itself, and tools of callers and upstreams, cannot be run (`mcp_server call` calls an upstream).',
    brief: 'Run a tool as this token.',
    needs: 'admin:read',
    // What it runs decides.
    destructive: true,
    idempotent: false,
    example: { tool: 'project', arguments: { action: 'list' } },
    input: z.object({
      tool: name.describe('Name of the tool, as in `tools`.'),
      arguments: z
        .record(z.string(), z.unknown())
        .optional()
        .describe('Arguments of the tool, with its `action`.'),
    }),
    output: z.object({ tool: z.string(), result: z.looseObject({}) }),
    run: async ({ door }, { tool, arguments: args = {} }) => {
      const result = await door.call(tool.replace(/^oubliette_/, ''), args)
      return { tool, result: result as Record<string, unknown> }
    },
  }),
}
