import { z } from 'zod'
import { patterns } from '../../ids.ts'
import { action, tool } from '../tool.ts'
import { cursor, limit, maybeTime, next_cursor, project_id, time } from './fields.ts'
import { session_id } from './session-fields.ts'

const approval_id = z
  .string()
  .regex(patterns.approval, 'is not an approval id (apr_…)')
  .describe('The approval.')
const statuses = ['open', 'allowed', 'denied', 'cancelled'] as const

const approval = z.object({
  approval_id: z.string(),
  session_id: z.string(),
  project_id: z.string(),
  request_id: z.string(),
  tool_call: z.record(z.string(), z.unknown()).describe('What the droid wants to do.'),
  options: z.array(z.record(z.string(), z.unknown())),
  status: z.enum(statuses),
  reason: z.string().nullable(),
  decided_by: z.string().nullable(),
  created_at: time,
  decided_at: maybeTime,
})

export const approvalTool = tool({
  name: 'approval',
  about: 'What droids ask before they act, and the answers.',
  actions: {
    list: action({
      about: 'Requests, oldest first.',
      needs: 'project:read',
      input: z.object({
        project_id: project_id
          .optional()
          .describe('Of this project; of all that this token may see if left out.'),
        session_id: session_id.optional(),
        status: z.enum(statuses).optional().describe('Only these.'),
        limit,
        cursor,
      }),
      output: z.object({ approvals: z.array(approval), next_cursor }),
      run: async ({ managers, caller: { scope } }, input) => {
        const project_id = input.project_id ?? (scope.kind === 'project' ? scope.project_id : undefined)
        return await managers.approvals.list({ ...input, project_id })
      },
    }),
    get: action({
      about: 'One request.',
      needs: 'project:read',
      input: z.object({ approval_id }),
      output: approval,
      run: async ({ managers }, input) => await managers.approvals.get(input.approval_id),
    }),
    decide: action({
      about: 'Allow or deny it. The first decision counts.',
      needs: 'project:write',
      input: z.object({
        approval_id,
        decision: z.enum(['allow', 'deny']).describe('What may happen.'),
        reason: z.string().max(2000).optional().describe('Kept with the decision.'),
      }),
      output: approval,
      run: async ({ managers, caller }, input) =>
        await managers.approvals.decide(caller, input.approval_id, input.decision, input.reason),
    }),
  },
})
