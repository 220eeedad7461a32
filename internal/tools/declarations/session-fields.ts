// Fields of the `session` actions: those of a spawn, of a caller and its tools, and of a session in results.
import { z } from 'zod'
import { Fault } from '../../fault.ts'
import { patterns } from '../../ids.ts'
import type { Declaration } from '../../manager/caller/tools.ts'
import { sessionStatuses } from '../../protocol/session-status.ts'
import { maybeTime, projectOutput, scope, time } from './fields.ts'

export const session_id = z
  .string()
  .regex(patterns.session, 'is not a session id (gogol_…)')
  .describe('Id of the session (gogol_…), as `session list` returns it.')
export const text = z.string().min(1).max(2_000_000)
export const wait_seconds = z
  .number()
  .min(0)
  .max(3600)
  .default(0)
  .describe(
    'Seconds to wait for the end of the turn before the call returns, at most 3,600. Default: 0, return at once.',
  )

export const idempotency_key = z.string().min(1).max(200).optional()

export const attachments = z
  .array(
    z.strictObject({
      name: z
        .string()
        .min(1)
        .max(200)
        .regex(/^[^/\p{Cc}]+$/u, 'must be a file name without /'),
      media_type: z.string().max(200).optional(),
      encoding: z.enum(['utf8', 'base64']).default('utf8'),
      data: z.string().max(3_500_000),
    }),
  )
  .max(50)
  .optional()
  .describe('Files that are written into the workspace before the droid reads the prompt, at most 50.')

export const spawning = {
  droid: z
    .string()
    .max(32)
    .optional()
    .describe(
      'Droid (agent) of the session, as `project options` lists them. Default: the droid of the project, then `default_droid` of the config.',
    ),
  model: z.string().max(200).optional().describe('Model of the session. Default: the model of the project.'),
  reasoning_level: z
    .string()
    .max(40)
    .optional()
    .describe('Reasoning effort, as a value that the agent knows.'),
  autonomy_level: z
    .enum(['off', 'low', 'medium', 'high'])
    .optional()
    .describe('How much the droid may do without asking for permission.'),
  tools_allowed: z
    .array(z.string().max(200))
    .max(200)
    .optional()
    .describe('The only built-in tools that the agent may use.'),
  tools_disallowed: z
    .array(z.string().max(200))
    .max(200)
    .optional()
    .describe('Built-in tools that the agent must not use.'),
  external_id: z
    .string()
    .max(200)
    .optional()
    .describe('Your own id for the session; stored, not interpreted.'),
  source: z.string().max(200).optional().describe('Origin of the request; stored, not interpreted.'),
  api_scope: scope
    .optional()
    .describe(
      'Scope in which the droid may use the tools of Oubliette, at most your own: admin, admin:ro, project:<id or name> or project:<id or name>:ro, stored with the id. Default: none, the droid cannot use them.',
    ),
  create_workspace: z
    .boolean()
    .optional()
    .describe(
      'Create the workspace if it does not exist, or a new one if `workspace_id` is left out. Default: false.',
    ),
}

const callerTool = z.strictObject({
  name: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, 'must be letters, digits, _ and -'),
  description: z.string().max(20_000).default(''),
  inputSchema: z
    .record(z.string(), z.unknown())
    .default({ type: 'object' })
    .describe('JSON Schema of the arguments, of type object.'),
  annotations: z.record(z.string(), z.unknown()).optional(),
  timeout_seconds: z
    .number()
    .min(1)
    .max(604_800)
    .optional()
    .describe('Seconds that a call waits for your answer, at most 604,800 (7 days). Default: 60.'),
  requires_approval: z
    .boolean()
    .optional()
    .describe('Whether each call is asked in the approval inbox before you get it. Default: false.'),
})
const callerFields = {
  caller_id: z
    .string()
    .regex(/^[A-Za-z][A-Za-z0-9_-]{0,31}$/, 'must be a letter, then letters, digits, _ and -; at most 32')
    .optional()
    .describe('Your id as a caller; the droid sees your tools as {caller_id}_{name}.'),
  caller_tools: z
    .array(callerTool)
    .max(200)
    .optional()
    .describe(
      'Tools that you offer to the droid, at most 200; they replace those that you declared before. Calls arrive as `caller_tool_request` events; answer them with `caller_tool_response`.',
    ),
}
export const calling = {
  ...callerFields,
  context: z
    .strictObject(callerFields)
    .optional()
    .describe('May contain `caller_id` and `caller_tools` instead of the top level.'),
}
type Calling = z.output<z.ZodObject<typeof calling>>

export function declarationOf({ caller_id, caller_tools, context }: Calling): Declaration | undefined {
  const id = caller_id ?? context?.caller_id
  const tools = caller_tools ?? context?.caller_tools
  if (tools === undefined) return undefined
  if (id === undefined) throw new Fault('invalid', 'caller_tools requires caller_id')
  return { caller_id: id, tools }
}

export const session = z.object({
  session_id: z.string(),
  ...projectOutput,
  workspace_id: z.string(),
  droid: z.string(),
  model: z.string().nullable(),
  status: z.enum(sessionStatuses),
  hibernated: z
    .boolean()
    .describe(
      'Whether the session is idle without a running process; the next message starts the agent again with its conversation.',
    ),
  queue_position: z
    .number()
    .nullable()
    .describe(
      'Position among the sessions of the project that wait for memory, from 1; null unless `queued`.',
    ),
  memory_mb: z
    .object({
      expected: z.number().describe('Memory that admission reserves for the droid, in MiB.'),
      measured: z.number().describe('Memory of its processes as last measured, in MiB; 0 if unknown.'),
    })
    .describe('Memory of the droid.'),
  reason: z.string().nullable(),
  step: z
    .string()
    .nullable()
    .describe(
      'What is done before the droid can start, such as building the image; null unless `preparing`.',
    ),
  percent: z.number().nullable().describe('How much of the build of the image is done; null if unknown.'),
  requires: z
    .array(z.string())
    .describe('Ids of the requests that a caller must answer while the session is `waiting`.'),
  open_requests: z
    .array(
      z.object({
        request_id: z.string(),
        session_id: z.string(),
        caller_id: z.string(),
        tool: z.string(),
        arguments: z.record(z.string(), z.unknown()),
        created_at: time,
        deadline_at: time,
      }),
    )
    .describe(
      'Calls of caller tools that wait for an answer: the oldest, with up to 2 MiB of arguments. `requires` contains all.',
    ),
  parent_session_id: z.string().nullable(),
  root_session_id: z.string(),
  depth: z.number(),
  autonomy_level: z.string(),
  api_scope: z.string().nullable(),
  source: z.string().nullable(),
  external_id: z.string().nullable(),
  last_index: z.number().describe('Index of the newest event.'),
  turns: z.number(),
  final_text: z
    .string()
    .nullable()
    .describe('Final text of the last turn; `list` returns the first 2,000 characters.'),
  stop_reason: z.string().nullable(),
  usage: z.object({ input_tokens: z.number(), output_tokens: z.number(), cost_usd: z.number() }),
  created_by: z.string(),
  created_at: time,
  updated_at: time,
  ended_at: maybeTime,
})
export const addressed = z.object({
  ...session.shape,
  turn_id: z.string(),
  since_index: z.number().describe('The events of this turn have a higher index.'),
  spawned: z.boolean().describe('Whether the session is new.'),
  finished: z.boolean().describe('Whether the turn had ended when the call returned.'),
})
