import { z } from 'zod'
import { patterns } from '../../ids.ts'
import { action, tool } from '../tool.ts'
import {
  cursor,
  exampleIds as ids,
  limit,
  maybeTime,
  next_cursor,
  pagingBriefs,
  project_id,
  projectOutput,
  time,
} from './fields.ts'
import { session_id } from './session-fields.ts'

const approval_id = z
  .string()
  .regex(patterns.approval, 'is not an approval id (apr_…)')
  .describe('Id of the approval (apr_…), as `approval list` returns it.')
const statuses = ['open', 'allowed', 'denied', 'cancelled'] as const

const approval = z.object({
  approval_id: z.string(),
  session_id: z.string(),
  ...projectOutput,
  request_id: z.string(),
  tool_call: z.record(z.string(), z.unknown()).describe('The tool call that the droid asks permission for.'),
  options: z.array(z.record(z.string(), z.unknown())),
  status: z.enum(statuses),
  reason: z.string().nullable(),
  decided_by: z.string().nullable(),
  created_at: time,
  decided_at: maybeTime,
})

export const approvalTool = tool({
  name: 'approval',
  about: 'Permission requests of droids, and the decisions on them.',
  brief: 'Permission requests of droids.',
  briefs: {
    ...pagingBriefs,
    session_id: '',
    status: '',
    approval_id: '',
    decision: '',
    reason: '',
  },
  actions: {
    list: action({
      about:
        'List permission requests, oldest first; use `status: open` to find those that wait for a decision.',
      brief: 'List requests, oldest first.',
      needs: 'project:read',
      example: { status: 'open' },
      input: z.object({
        project_id: project_id
          .optional()
          .describe('Only requests of this project. Default: all projects that this token may see.'),
        session_id: session_id.optional().describe('Only requests of this session.'),
        status: z.enum(statuses).optional().describe('Only requests with this status.'),
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
      about: 'Get one permission request with its tool call, options and status.',
      brief: 'Get one with its tool call.',
      needs: 'project:read',
      example: { approval_id: ids.approval_id },
      input: z.object({ approval_id }),
      output: approval,
      run: async ({ managers }, input) => await managers.approvals.get(input.approval_id),
    }),
    decide: action({
      about:
        'Allow or deny an open permission request, so that the droid continues; returns the decided request. The first decision is final.',
      brief: 'Allow or deny an open one, finally.',
      needs: 'project:write',
      example: { approval_id: ids.approval_id, decision: 'allow' },
      input: z.object({
        approval_id,
        decision: z.enum(['allow', 'deny']).describe('Whether the droid may make the call.'),
        reason: z
          .string()
          .max(2000)
          .optional()
          .describe('Stored with the decision, at most 2,000 characters.'),
      }),
      output: approval,
      run: async ({ managers, caller }, input) =>
        await managers.approvals.decide(caller, input.approval_id, input.decision, input.reason),
    }),
  },
})
