import { z } from 'zod'
import { connectionFields, optionFields, serverName } from '../../config/mcp-servers.ts'
import { Fault } from '../../fault.ts'
import { toolStatuses, transports } from '../../store/rows/upstream/tables.ts'
import { createDisabled } from '../droid/disabled-tools.ts'
import { action, type RunContext, tool } from '../tool.ts'
import {
  cursor,
  exampleIds as ids,
  limit,
  maybeTime,
  next_cursor,
  pagingBriefs,
  project_id,
  time,
} from './fields.ts'

const { command, args, env, url, headers, timeout_seconds, allow, deny, policy } = connectionFields

const which = {
  name: z.string().min(1).max(64).describe('Name of the server, at most 64 characters.'),
  project_id: project_id
    .optional()
    .describe(
      'Project of the server. Default: the project of a project token; for an admin, the global servers.',
    ),
}

const settable = {
  command: command.describe('Program of a stdio server; it runs in a container of its own.'),
  args: args.describe('Arguments of the program.'),
  env: env.describe(
    'Environment variables of the program. `${env:NAME}` (admin) and `${secret:name}` are references; other values are stored encrypted and are not shown again.',
  ),
  url: url.describe(
    'URL of an http or sse server. With a project token: an address that the network of the project allows.',
  ),
  headers: headers.describe('HTTP headers, with values as in `env`.'),
  enabled: z.boolean().optional().describe('Whether it is used. Default: true.'),
  timeout_seconds: timeout_seconds.describe(
    'Time-out of a call without progress, in seconds. Default: `gateway.timeout_seconds` of the config.',
  ),
  allow: allow.describe('Names of the tools to offer; `*` matches any characters. Default: all.'),
  deny: deny.describe('Names of tools that are not offered.'),
  policy: policy.describe(
    'By tool name or pattern: `allow`, `ask` or `deny` calls of droids. Default: by the annotations of the tool and the autonomy of the session.',
  ),
  options: z
    .strictObject(optionFields)
    .optional()
    .describe('Further settings; a project token can use those that its project bounds allow.'),
}

const server = z
  .object({
    name: z.string(),
    project_id: z.string().nullable().describe('Null: global.'),
    source: z.enum(['api', 'file']).describe('`file`: defined in mcp-servers.json.'),
    transport: z.enum(transports),
    enabled: z.boolean(),
    state: z.enum(['disabled', 'configured', 'connecting', 'connected', 'degraded', 'error']),
    credentials: z.enum(['none', 'ok', 'expiring', 'needs_reauth', 'revoked']),
    reason: z.string().nullable().describe('Why it is degraded or in error.'),
    tools: z.number().describe('Number of approved tools.'),
    unapproved: z.number().describe('Number of tools that wait for approval.'),
    server: z
      .record(z.string(), z.unknown())
      .nullable()
      .describe('Name and version, as the server states them.'),
    discovered_at: maybeTime,
    created_by: z.string(),
    created_at: time,
    updated_at: time,
  })
  .loose()
  .describe('With the settings; values of secrets are not shown.')

const upstreamTool = z.object({
  name: z.string(),
  visible_name: z.string().describe('As droids see it.'),
  status: z.enum(toolStatuses),
  title: z.string().optional(),
  description: z.string().optional(),
  inputSchema: z.record(z.string(), z.unknown()),
  outputSchema: z.record(z.string(), z.unknown()).optional(),
  annotations: z.record(z.string(), z.unknown()).optional(),
  pin: z.string().describe('SHA-256 of the definition.'),
  approval_id: z.string().nullable(),
  resembles: z.string().nullable().describe('The vanished tool that this new one resembles.'),
  hidden_characters: z
    .array(z.record(z.string(), z.unknown()))
    .describe('Invisible characters in the definition.'),
})

const entryOf = <T extends { options?: object | undefined }>({ options, ...rest }: T) => ({
  ...rest,
  ...options,
})

/** A droid that adds, approves or loosens a server would decide about itself. */
const refuseSessions = ({ caller }: RunContext, what: string) => {
  if (caller.session_id)
    throw new Fault('forbidden', `a session cannot ${what}`, { hint: 'use a token that no session created' })
}

export const mcpServerTool = tool({
  name: 'mcp_server',
  about:
    'Upstream MCP servers, whose tools droids see as `mcp__<server>__<tool>`. Changed and new tools are hidden until they are approved.',
  brief: 'MCP servers whose tools droids can use.',
  briefs: {
    ...pagingBriefs,
    name: '',
    transport: '',
    command: '',
    args: '',
    env: '',
    url: '',
    headers: '',
    enabled: '',
    timeout_seconds: '',
    allow: 'Tools; * matches',
    deny: '',
    policy: 'tool: allow|ask|deny',
    options: '',
    status: '',
    tools: 'default all',
    tool: '',
    resource: 'or URI',
    prompt: 'or name',
    arguments: '',
    document: '',
  },
  admin_fields: ['options'],
  actions: {
    add: action({
      about:
        'Add a server and list its tools. The tools are approved if an admin adds it; otherwise they wait for `approve_tools`.',
      brief: 'Add a server.',
      needs: 'project:write',
      example: { name: 'github', transport: 'http', url: 'https://mcp.example.com/mcp' },
      input: z.object({
        ...which,
        name: serverName.describe('Name of the server, unique in its project; at most 64 characters.'),
        transport: z
          .enum(transports)
          .describe('How it is reached: a program, Streamable HTTP, or legacy SSE.'),
        ...settable,
      }),
      output: server,
      run: async ({ managers, caller }, input) => await managers.gateway.registry.add(caller, entryOf(input)),
    }),
    import: action({
      about:
        'Add the servers of `.mcp.json` in the default workspace of the project, or of a given `document` in that format or in the format of `server.json` of the MCP registry. Returns what was added and why others were not. A server that needs further values is added disabled.',
      brief: 'Add from .mcp.json or document.',
      needs: 'project:write',
      example: { project_id: ids.project_id },
      input: z.object({
        project_id: which.project_id,
        document: z.record(z.string(), z.unknown()).optional().describe('The document, instead of a file.'),
      }),
      output: z.object({ added: z.array(z.string()), problems: z.array(z.string()) }),
      run: async ({ managers, caller }, input) => await managers.gateway.registry.import(caller, input),
    }),
    list: action({
      about:
        'List the servers of a project, with the global ones that it may use; for an admin without project_id, all servers.',
      brief: 'List with states.',
      needs: 'project:read',
      example: {},
      input: z.object({ project_id: which.project_id, limit, cursor }),
      output: z.object({ servers: z.array(server), next_cursor }),
      run: async ({ managers, caller }, input) => await managers.gateway.registry.list(caller, input),
    }),
    get: action({
      about: 'Get one server with its state, its last lines of stderr, resources and prompts.',
      brief: 'Get with resources, prompts.',
      needs: 'project:read',
      example: { name: 'github' },
      input: z.object(which),
      output: server,
      run: async ({ managers, caller }, input) => await managers.gateway.registry.get(caller, input),
    }),
    update: action({
      about:
        'Change, enable or disable a server; only given fields change. Approvals of its tools stay valid while their definitions do.',
      brief: 'Change, disable.',
      needs: 'project:write',
      idempotent: true,
      example: { name: 'github', enabled: false },
      input: z.object({
        ...which,
        transport: z.enum(transports).optional().describe('Another transport.'),
        ...settable,
      }),
      output: server,
      run: async ({ managers, caller }, input) =>
        await managers.gateway.registry.update(caller, entryOf(input)),
    }),
    remove: action({
      about: 'Remove a server with its approvals and stored secrets.',
      brief: 'Remove for good.',
      needs: 'project:write',
      destructive: true,
      example: { name: 'github' },
      input: z.object(which),
      output: z.object({ name: z.string(), project_id: z.string().nullable(), removed: z.literal(true) }),
      run: async ({ managers, caller }, input) => await managers.gateway.registry.remove(caller, input),
    }),
    tools: action({
      about:
        'List the tools of a server with their definitions and status: `approved`, `pending` (new) or `changed` since their approval.',
      brief: 'List tools.',
      needs: 'project:read',
      example: { name: 'github', status: 'changed' },
      input: z.object({
        ...which,
        status: z.enum(toolStatuses).optional().describe('Only tools with this status.'),
      }),
      output: z.object({ tools: z.array(upstreamTool) }),
      run: async ({ managers, caller }, { status, ...input }) => {
        const { tools } = await managers.gateway.tools(caller, input)
        const wanted = tools.filter((one) => status === undefined || one.status === status)
        return {
          tools: wanted.map((one) => {
            const { title, description, inputSchema, outputSchema, annotations } = one.definition
            return {
              name: one.name,
              visible_name: one.visible_name,
              status: one.status,
              ...(title === undefined ? {} : { title: String(title) }),
              ...(description === undefined ? {} : { description: String(description) }),
              inputSchema: inputSchema as Record<string, unknown>,
              ...(outputSchema === undefined
                ? {}
                : { outputSchema: outputSchema as Record<string, unknown> }),
              ...(annotations === undefined ? {} : { annotations: annotations as Record<string, unknown> }),
              pin: one.pin,
              approval_id: one.approval_id,
              resembles: one.resembles,
              hidden_characters: one.hidden_characters,
            }
          }),
        }
      },
    }),
    approve_tools: action({
      about: 'Approve new and changed tools of a server as they are now. A session cannot approve.',
      brief: 'Approve new, changed ones.',
      needs: 'project:write',
      idempotent: true,
      example: { name: 'github', tools: ['create_issue'] },
      input: z.object({
        ...which,
        tools: z
          .array(z.string().max(200))
          .max(1000)
          .optional()
          .describe('Names of the tools. Default: all.'),
      }),
      output: z.object({ approved: z.array(z.string()) }),
      run: async (context, { tools, ...input }) => {
        refuseSessions(context, 'approve tools')
        const { managers, caller } = context
        const row = await managers.gateway.registry.changeable(caller, input)
        return { approved: await managers.gateway.definitions.approve(row, tools, caller.id) }
      },
    }),
    call: action({
      about:
        'Call a tool of a server, read a resource or get a prompt; exactly one of `tool`, `resource` and `prompt`. Returns what the server returned.',
      brief: 'Call a tool.',
      needs: 'project:write',
      // The call of the other server has an audit row of its own, with its intent.
      commits_audit: true,
      example: { name: 'github', tool: 'search', arguments: { query: 'bug' } },
      input: z.object({
        ...which,
        tool: z.string().max(200).optional().describe('Name of the tool.'),
        resource: z.string().max(2000).optional().describe('URI of a resource to read.'),
        prompt: z.string().max(200).optional().describe('Name of a prompt to get.'),
        arguments: z
          .record(z.string(), z.unknown())
          .optional()
          .describe('Arguments of the tool or the prompt.'),
      }),
      output: z.object({ result: z.record(z.string(), z.unknown()) }),
      run: async (context, { tool, resource, prompt, arguments: args = {}, ...input }) => {
        const { managers, caller, signal, progress } = context
        if ([tool, resource, prompt].filter((one) => one !== undefined).length !== 1)
          throw new Fault('invalid', 'mcp_server.call needs exactly one of tool, resource and prompt')
        const { gateway } = managers
        const row = await gateway.registry.visible(caller, input)
        const from = {
          project_id:
            input.project_id ?? (caller.scope.kind === 'project' ? caller.scope.project_id : row.project_id),
          // What a session must ask as a droid, it must ask here too.
          session_id: caller.session_id ?? null,
          caller_id: caller.id,
          autonomy: caller.session_id ? await gateway.autonomyOf(caller.session_id) : null,
        }
        const named = { tool: `mcp:${row.name}`, action: 'mcp_tool_call' }
        const cancelled = () => true
        return await context.audited(named, async (intent) => {
          const how = { signal, progress, cancelled, intent }
          if (resource !== undefined) return { result: await gateway.readResource(row, resource, from, how) }
          if (prompt !== undefined) return { result: await gateway.getPrompt(row, prompt, args, from, how) }
          const offer = await gateway.offerOf(row, tool!)
          if (createDisabled(context.disabled_tools ?? []).hasUpstreams(offer.tool.visible_name))
            throw new Fault('forbidden', `the project disables ${offer.tool.visible_name} for its droids`)
          return { result: await gateway.call(from, offer, args, how) }
        })
      },
    }),
    restart: action({
      about: 'Close the connection of a server and end its process, connect again, and list its tools.',
      brief: 'Reconnect it.',
      needs: 'project:write',
      idempotent: true,
      example: { name: 'github' },
      input: z.object(which),
      output: server,
      run: async ({ managers, caller }, input) => {
        await managers.gateway.restart(await managers.gateway.registry.changeable(caller, input))
        return await managers.gateway.registry.get(caller, input)
      },
    }),
    auth: action({
      about:
        'Begin the OAuth authorization of a server: open the returned URL in a browser. `url` is null if the stored credentials are valid.',
      brief: 'Get OAuth consent URL.',
      needs: 'project:write',
      example: { name: 'github' },
      input: z.object(which),
      output: z.object({ url: z.string().nullable() }),
      run: async ({ managers, caller }, input) => {
        const row = await managers.gateway.registry.changeable(caller, input)
        return { url: (await managers.gateway.authorize(row))?.url ?? null }
      },
    }),
  },
})
