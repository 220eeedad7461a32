// What the actions of `session` take and give: the fields of a spawn, of a caller and its tools, and a session as it is shown.
import { z } from 'zod'
import { Fault } from '../../fault.ts'
import { patterns } from '../../ids.ts'
import type { Declaration } from '../../manager/caller/tools.ts'
import { sessionStatuses } from '../../protocol/session-status.ts'
import { maybeTime, time } from './fields.ts'

export const session_id = z
  .string()
  .regex(patterns.session, 'is not a session id (gogol_…)')
  .describe('The session.')
export const text = z.string().min(1).max(2_000_000)
export const wait_seconds = z
  .number()
  .min(0)
  .max(3600)
  .default(0)
  .describe('Answer when the turn is over, or after this long.')

export const idempotency_key = z.string().min(1).max(200).optional()

export const attachments = z
  .array(
    z.strictObject({
      name: z
        .string()
        .min(1)
        .max(200)
        .regex(/^[^/\p{Cc}]+$/u, 'must be a plain file name'),
      media_type: z.string().max(200).optional(),
      encoding: z.enum(['utf8', 'base64']).default('utf8'),
      data: z.string().max(3_500_000),
    }),
  )
  .max(50)
  .optional()
  .describe('Files, written into the workspace before the droid reads the prompt.')

export const spawning = {
  droid: z.string().max(32).optional().describe("The project's, then the config's, if left out."),
  model: z.string().max(200).optional().describe("The project's if left out."),
  reasoning_level: z.string().max(40).optional().describe("How hard to think, in the agent's own words."),
  autonomy_level: z
    .enum(['off', 'low', 'medium', 'high'])
    .optional()
    .describe('What it may do without asking.'),
  tools_allowed: z.array(z.string().max(200)).max(200).optional().describe('Only these tools of the agent.'),
  tools_disallowed: z
    .array(z.string().max(200))
    .max(200)
    .optional()
    .describe('Not these tools of the agent.'),
  external_id: z.string().max(200).optional().describe('Your own id for it; kept, not interpreted.'),
  source: z.string().max(200).optional().describe('Where the request comes from; kept, not interpreted.'),
  api_scope: z
    .string()
    .max(100)
    .optional()
    .describe('What the droid may do with the tools of Oubliette; nothing if left out, never more than you.'),
  create_workspace: z
    .boolean()
    .optional()
    .describe('Make the workspace if it is not there; a new one if none is named.'),
}

const callerTool = z.strictObject({
  name: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, 'must be letters, digits, _ and -'),
  description: z.string().max(20_000).default(''),
  inputSchema: z
    .record(z.string(), z.unknown())
    .default({ type: 'object' })
    .describe('A JSON schema of type object.'),
  annotations: z.record(z.string(), z.unknown()).optional(),
  timeout_seconds: z
    .number()
    .min(1)
    .max(604_800)
    .optional()
    .describe('How long a call waits for your answer: 60 s if left out, up to 7 days.'),
})
const callerFields = {
  caller_id: z
    .string()
    .regex(/^[A-Za-z][A-Za-z0-9_-]{0,31}$/, 'must be a letter, then letters, digits, _ and -; at most 32')
    .optional()
    .describe('Your name: the droid sees your tools as {caller_id}_{name}.'),
  caller_tools: z
    .array(callerTool)
    .max(200)
    .optional()
    .describe('Tools that you offer to the droid. They replace those you declared before.'),
}
export const calling = {
  ...callerFields,
  context: z
    .looseObject(callerFields)
    .optional()
    .describe('`caller_id` and `caller_tools` may stand in here as well.'),
}
type Calling = z.output<z.ZodObject<typeof calling>>

export function declarationOf({ caller_id, caller_tools, context }: Calling): Declaration | undefined {
  const id = caller_id ?? context?.caller_id
  const tools = caller_tools ?? context?.caller_tools
  if (tools === undefined) return undefined
  if (id === undefined) throw new Fault('invalid', 'caller_tools need a caller_id')
  return { caller_id: id, tools }
}

export const session = z.object({
  session_id: z.string(),
  project_id: z.string(),
  workspace_id: z.string(),
  droid: z.string(),
  model: z.string().nullable(),
  status: z.enum(sessionStatuses),
  hibernated: z
    .boolean()
    .describe(
      'Idle without a running process; the next message starts the agent again with its conversation.',
    ),
  queue_position: z
    .number()
    .nullable()
    .describe('While `queued`: its place among the sessions of the project that wait for memory, from 1.'),
  memory_mb: z
    .object({
      expected: z.number().describe('What admission counts for its droid, in MiB.'),
      measured: z.number().describe('What its processes took when last measured, in MiB; 0 if unknown.'),
    })
    .describe('Memory of its droid.'),
  reason: z.string().nullable(),
  requires: z.array(z.string()).describe('Request ids that somebody outside must answer, while waiting.'),
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
      "Calls of callers' tools that wait for an answer: the oldest, up to 2 MiB of arguments in one answer. `requires` names all.",
    ),
  parent_session_id: z.string().nullable(),
  root_session_id: z.string(),
  depth: z.number(),
  autonomy_level: z.string(),
  api_scope: z.string().nullable(),
  source: z.string().nullable(),
  external_id: z.string().nullable(),
  last_index: z.number().describe('Index of its newest event.'),
  turns: z.number(),
  final_text: z.string().nullable().describe('Of its last turn; `list` shows the first 2,000 characters.'),
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
  since_index: z.number().describe('The events of this turn come after it.'),
  spawned: z.boolean().describe('Whether the session is new.'),
  finished: z.boolean().describe('Whether the turn was over when this was answered.'),
})
