import { z } from 'zod'
import { Fault } from '../../fault.ts'
import { action, standalone } from '../tool.ts'
import { limitsOutput, maybeTime, project_id, workspace_id } from './fields.ts'
import { session_id } from './session-fields.ts'

const tokens = { input_tokens: z.number(), output_tokens: z.number(), cost_usd: z.number() }

export const configLimits = standalone(
  'config_limits',
  action({
    about:
      "The limits that hold for a project, how much of them is used, of a session's tree too, and who may change which field of the project.",
    needs: 'project:read',
    input: z.object({ project_id, session_id: session_id.optional() }),
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
          .describe('What model requests under way may still cost; counted against `max_cost_usd`.'),
      }),
      changeable: z
        .record(z.string(), z.enum(['admin', 'tighten', 'project']))
        .describe(
          'By field of `project update`: `project` tokens may change it, may only `tighten` it, or it takes an `admin`.',
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
)

export const imageRebuild = standalone(
  'image_rebuild',
  action({
    about:
      'Build the image of a container type anew. Running containers keep theirs until they are recreated.',
    needs: 'global:write',
    input: z.object({
      container_type: z.string().min(1).max(64).describe('As `project options` lists them.'),
      no_cache: z.boolean().default(false).describe('Start from nothing, to get newer packages.'),
    }),
    output: z.object({
      container_type: z.string(),
      reference: z.string(),
      size_bytes: z.number().nullable(),
      created_at: maybeTime,
      duration_ms: z.number(),
    }),
    run: async ({ managers, progress, signal }, { container_type, no_cache }) => {
      let lines = 0
      return await managers.containers.rebuildImage(container_type, {
        no_cache,
        signal,
        progress: (message) => progress({ progress: ++lines, message }),
      })
    },
  }),
)

const change = z
  .string()
  .min(1)
  .max(200)
  .regex(/^[^/\p{Cc}]+$/u, 'must be the name of a change')
  .optional()
  .describe('One change; all of them if left out.')

export const projectChanges = standalone(
  'project_changes',
  action({
    about: 'The OpenSpec changes of a project (openspec/changes), with how far each is.',
    needs: 'project:read',
    input: z.object({
      project_id,
      workspace_id: workspace_id.optional(),
      include_archived: z.boolean().default(false).describe('Also those in openspec/changes/archive.'),
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
        .describe('The files are larger than 8 MiB together; further changes are left out.'),
    }),
    run: async ({ managers }, { project_id, ...options }) =>
      await managers.changes.changes(project_id, options),
  }),
)

export const projectTasks = standalone(
  'project_tasks',
  action({
    about: 'The task lists of the OpenSpec changes of a project.',
    needs: 'project:read',
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
        .describe('There are more than 5,000 tasks or 8 MiB of them; the rest is left out.'),
    }),
    run: async ({ managers }, { project_id, ...options }) =>
      await managers.changes.tasks(project_id, options),
  }),
)

export const callerToolResponse = standalone(
  'caller_tool_response',
  action({
    about: 'Answer a call of one of your tools by a droid: with a result, an error, or how far it is.',
    needs: 'project:write',
    // `caller_calls` closes the request and writes its audit row in one statement; progress changes nothing.
    commits_audit: true,
    input: z.object({
      session_id,
      request_id: z.uuid('is not a request id (a UUID)').describe('As in the caller_tool_request event.'),
      result: z.unknown().optional().describe('Any JSON, or an MCP tool result with `content`.'),
      error: z.unknown().optional().describe('A sentence, or an object with `message`: the call failed.'),
      progress: z
        .strictObject({
          progress: z.number(),
          total: z.number().optional(),
          message: z.string().max(2000).optional(),
        })
        .optional()
        .describe('Not the answer yet: told to the droid as progress.'),
    }),
    output: z.object({ request_id: z.string(), accepted: z.literal(true) }),
    run: async ({ managers, caller }, { session_id, request_id, ...given }) => {
      const said = Object.entries(given).filter(([, value]) => value !== undefined)
      if (said.length !== 1)
        throw new Fault('invalid', 'caller_tool_response: one of result, error and progress is needed')
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
)
