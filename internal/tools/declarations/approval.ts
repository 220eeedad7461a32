import { z } from 'zod'
import { patterns } from '../../ids.ts'
import { approvalKinds, approvalScopes, approvalStatuses } from '../../manager/approval/approval.ts'
import { action, tool } from '../tool.ts'
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
import { session_id } from './session-fields.ts'

const approval_id = z
  .string()
  .regex(patterns.approval, 'is not an approval id (apr_…)')
  .describe('Id of the approval (apr_…), as `approval list` returns it.')
const scope = z
  .enum(approvalScopes)
  .optional()
  .describe('How long the decision on a tool call is remembered. Default: once.')

const approval = z.object({
  approval_id: z.string(),
  kind: z.enum(approvalKinds),
  session_id: z.string().nullable(),
  project_id: z.string().nullable(),
  project_name: z.string().nullable(),
  request_id: z.string(),
  tool_call: z
    .record(z.string(), z.unknown())
    .describe('The tool call that the droid asks permission for; for other kinds its title.'),
  options: z.array(z.record(z.string(), z.unknown())),
  server: z.string().nullable().describe('The upstream server or the caller that offers the tool.'),
  tool: z.string().nullable(),
  arguments: z
    .record(z.string(), z.unknown())
    .nullable()
    .describe('Of the call, for display: long values are clipped and invisible characters escaped.'),
  detail: z
    .record(z.string(), z.unknown())
    .describe(
      'Why a tool is asked, the change of a definition, the request of an elicitation, or the URL of a consent.',
    ),
  status: z.enum(approvalStatuses),
  scope: z.enum(approvalScopes).nullable(),
  reason: z.string().nullable(),
  decided_by: z.string().nullable(),
  created_at: time,
  expires_at: maybeTime,
  decided_at: maybeTime,
  revoked_at: maybeTime,
})

export const approvalTool = tool({
  name: 'approval',
  about:
    'What must be asked before it happens, and the decisions: permission requests of droids, tool calls, changed definitions of upstream tools, questions of upstream servers and OAuth consents.',
  brief: 'Asked permissions.',
  briefs: {
    ...pagingBriefs,
    session_id: '',
    project_id: '',
    status: '',
    scope: '',
    approval_id: '',
    decision: '',
    reason: '',
    content: '',
  },
  // A filter for people with a full inbox; every result states its kind.
  unlisted: ['kind'],
  actions: {
    list: action({
      about:
        'List approvals, oldest first; use `status: open` to find those that wait for a decision, and `scope: always` to find remembered decisions that are in force.',
      brief: 'Oldest first.',
      needs: 'project:read',
      example: { status: 'open' },
      input: z.object({
        project_id: project_id
          .optional()
          .describe('Only approvals of this project. Default: all projects that this token may see.'),
        session_id: session_id.optional().describe('Only approvals of this session.'),
        status: z.enum(approvalStatuses).optional().describe('Only approvals with this status.'),
        kind: z.enum(approvalKinds).optional().describe('Only approvals of this kind.'),
        scope: scope.describe(
          'In a list, only decisions with this scope that are not revoked. In a decision on a tool call, how long it is remembered. Default of a decision: once.',
        ),
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
      about: 'Get one approval with what it asks, its status and its decision.',
      brief: 'One in full.',
      needs: 'project:read',
      example: { approval_id: ids.approval_id },
      input: z.object({ approval_id }),
      output: approval,
      run: async ({ managers }, input) => await managers.approvals.get(input.approval_id),
    }),
    decide: action({
      about:
        'Allow or deny an open approval, so that the droid continues; returns the decided approval. The first decision is final. A session decides only for its descendants, and allows only what it may do itself.',
      brief: 'Final decision.',
      needs: 'project:write',
      example: { approval_id: ids.approval_id, decision: 'allow' },
      input: z.object({
        approval_id,
        decision: z.enum(['allow', 'deny']).describe('Whether the droid may make the call.'),
        scope,
        reason: z
          .string()
          .max(2000)
          .optional()
          .describe(
            'Stored with the decision, at most 2,000 characters; the droid reads the reason of a denial.',
          ),
        content: z
          .record(z.string(), z.unknown())
          .optional()
          .describe(
            'The answer to an elicitation that is allowed: valid for its requested schema, no larger than 64 KiB.',
          ),
      }),
      output: approval,
      run: async ({ managers, caller }, { approval_id, ...answer }) =>
        await managers.approvals.decide(caller, approval_id, answer),
    }),
    revoke: action({
      about: 'Revoke a remembered decision, so that the next call of the tool is asked again; returns it.',
      brief: 'Undo scope.',
      needs: 'project:write',
      example: { approval_id: ids.approval_id },
      input: z.object({ approval_id }),
      output: approval,
      run: async ({ managers, caller }, input) => await managers.approvals.revoke(caller, input.approval_id),
    }),
  },
})
