import { z } from 'zod'
import { Fault } from '../../fault.ts'
import { reporting } from '../reporting.ts'
import { action, standalone } from '../tool.ts'
import { exampleIds as ids, limitsOutput, maybeTime, project_id, workspace_id } from './fields.ts'
import { session_id } from './session-fields.ts'

const tokens = { input_tokens: z.number(), output_tokens: z.number(), cost_usd: z.number() }

export const configLimits = standalone(
  'config_limits',
  action({
    about:
      'Get the effective limits of a project, the current usage, and who may change which field of the project; with `session_id`, also the usage of the tree of that session.',
    brief: 'Get limits, usage, who may change settings.',
    needs: 'project:read',
    example: { project_id: ids.project_id },
    input: z.object({
      project_id,
      session_id: session_id.optional().describe('Session whose tree is reported too.'),
    }),
    output: z.object({
      project_id: z.string(),
      limits: limitsOutput,
      used: z.object({
        sessions: z.number(),
        active_sessions: z.number(),
        spawns_last_minute: z.number(),
        ...tokens,
        reserved_usd: z
          .number()
          .describe('Cost that running model requests may still cause; counts against `max_cost_usd`.'),
      }),
      changeable: z
        .record(z.string(), z.enum(['admin', 'tighten', 'project']))
        .describe(
          'By field of `project update`: `project`, project tokens may change it; `tighten`, they may only tighten it; `admin`, only an admin may change it.',
        ),
      session: z
        .object({
          session_id: z.string(),
          depth: z.number(),
          root_session_id: z.string(),
          tree: z.object({ sessions: z.number(), ...tokens }),
        })
        .nullable(),
    }),
    run: async ({ managers }, input) => await managers.limits(input.project_id, input.session_id),
  }),
  { project_id: '', session_id: 'Adds its tree' },
)

export const imageRebuild = standalone(
  'image_rebuild',
  action({
    about:
      'Build the image of a container type and return it; build output is sent as progress. An image that is current is built again only with `no_cache`. Running containers keep their image until they are recreated with `container start`.',
    brief:
      'Build the image of a container type; if current, only with no_cache. container start with recreate uses it.',
    needs: 'global:write',
    example: { container_type: 'base' },
    input: z.object({
      container_type: z.string().min(1).max(64).describe('Container type, as `project options` lists them.'),
      no_cache: z
        .boolean()
        .default(false)
        .describe(
          'Build again without cached layers, also if the image is current, to get newer packages. Default: false.',
        ),
    }),
    output: z.object({
      container_type: z.string(),
      reference: z.string(),
      size_bytes: z.number().nullable(),
      created_at: maybeTime,
      duration_ms: z.number(),
      rebuilt: z
        .boolean()
        .describe(
          'False if the image was current: its folder and its base have not changed since it was built.',
        ),
    }),
    run: async ({ managers, progress, signal }, { container_type, no_cache }) => {
      using report = reporting(progress)
      return await managers.containers.rebuildImage(container_type, {
        no_cache,
        signal,
        progress: ({ line }) => report.tell(line),
      })
    },
  }),
  { container_type: 'See project options', no_cache: 'Build again, for newer packages' },
)

const change = z
  .string()
  .min(1)
  .max(200)
  .regex(/^[^/\p{Cc}]+$/u, 'must be a change name without /')
  .optional()
  .describe('Name of one change. Default: all changes.')

export const projectChanges = standalone(
  'project_changes',
  action({
    about:
      'List the OpenSpec changes of a project (openspec/changes) with the state and task counts of each.',
    brief: 'List OpenSpec changes and task counts.',
    needs: 'project:read',
    example: { project_id: ids.project_id },
    input: z.object({
      project_id,
      workspace_id: workspace_id.optional(),
      include_archived: z
        .boolean()
        .default(false)
        .describe('Also return changes in openspec/changes/archive. Default: false.'),
    }),
    output: z.object({
      changes: z.array(
        z.object({
          change: z.string(),
          title: z.string().nullable(),
          path: z.string(),
          state: z.string().describe('proposed, in_progress, complete or archived.'),
          tasks_done: z.number(),
          tasks_total: z.number(),
        }),
      ),
      truncated: z
        .boolean()
        .describe('Whether changes were left out because the files exceed 8 MiB in total.'),
    }),
    run: async ({ managers }, { project_id, ...options }) =>
      await managers.changes.changes(project_id, options),
  }),
  { project_id: '', workspace_id: '', include_archived: '' },
)

export const projectTasks = standalone(
  'project_tasks',
  action({
    about: 'List the tasks of the OpenSpec changes of a project, and how many are done.',
    brief: 'List OpenSpec tasks.',
    needs: 'project:read',
    example: { project_id: ids.project_id },
    input: z.object({ project_id, workspace_id: workspace_id.optional(), change }),
    output: z.object({
      tasks: z.array(
        z.object({
          change: z.string(),
          number: z.string().nullable(),
          section: z.string().nullable(),
          text: z.string(),
          done: z.boolean(),
        }),
      ),
      done: z.number(),
      total: z.number(),
      truncated: z
        .boolean()
        .describe('Whether tasks were left out because there are more than 5,000 or they exceed 8 MiB.'),
    }),
    run: async ({ managers }, { project_id, ...options }) =>
      await managers.changes.tasks(project_id, options),
  }),
  { project_id: '', workspace_id: '', change: '' },
)

export const callerToolResponse = standalone(
  'caller_tool_response',
  action({
    about:
      'Answer a `caller_tool_request` event, which is the call of one of your tools by a droid. Give exactly one of `result`, `error` and `progress`.',
    brief: 'Answer a caller_tool_request with one of result, error, progress.',
    needs: 'project:write',
    // `caller_calls` closes the request and writes its audit row in one statement; progress changes nothing.
    commits_audit: true,
    example: { session_id: ids.session_id, request_id: ids.request_id, result: { sent: true } },
    input: z.object({
      session_id,
      request_id: z
        .uuid('is not a request id (a UUID)')
        .describe('`request_id` of the `caller_tool_request` event.'),
      result: z
        .unknown()
        .optional()
        .describe('Result of the call: any JSON, or an MCP tool result with `content`.'),
      error: z
        .union([z.string(), z.unknown()])
        .optional()
        .describe('Why the call failed: a sentence, or an object with `message`.'),
      progress: z
        .strictObject({
          progress: z.number(),
          total: z.number().optional(),
          message: z.string().max(2000).optional(),
        })
        .optional()
        .describe('Progress report for the droid; the request stays open.'),
    }),
    output: z.object({ request_id: z.string(), accepted: z.literal(true) }),
    run: async ({ managers, caller }, { session_id, request_id, ...given }) => {
      const given_fields = Object.entries(given).filter(([, value]) => value !== undefined)
      if (given_fields.length !== 1)
        throw new Fault('invalid', 'caller_tool_response: give exactly one of result, error and progress')
      if (given.progress)
        await managers.callerRequests.progress(caller, session_id, request_id, given.progress)
      else
        await managers.callerRequests.answer(
          caller,
          session_id,
          request_id,
          given.error === undefined ? { result: given.result } : { error: given.error },
        )
      return { request_id, accepted: true as const }
    },
  }),
  {
    session_id: '',
    request_id: 'UUID of the event',
    result: 'JSON, or an MCP tool result',
    error: '{message}',
    progress: 'The request stays open',
  },
)
