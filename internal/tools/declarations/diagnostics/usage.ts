// Tokens and cost. `usage` is open to the tokens of a project; `diagnostics usage` is the same for operators.
import { z } from 'zod'
import { usageGroups } from '../../../store/rows/usage.ts'
import { action, standalone } from '../../tool.ts'
import { project_id } from '../fields.ts'
import { since } from './times.ts'

const counted = {
  sessions: z.number(),
  input_tokens: z.number(),
  output_tokens: z.number(),
  cost_usd: z.number(),
}

export const usageAction = action({
  about:
    'Get the tokens and the cost of model use, grouped: days newest first, other groups by cost. Deleted sessions and projects count. Returns at most 1,000 groups; `total` covers all.',
  brief: 'Get tokens and cost.',
  needs: 'project:read',
  example: { group_by: 'model' },
  input: z.object({
    project_id: project_id
      .optional()
      .describe('Only this project. Default: all projects that this token may see.'),
    since: since.optional().describe('Only usage since this time (ISO 8601), rounded down to the hour.'),
    group_by: z
      .enum(usageGroups)
      .default('project')
      .describe('What to group by; days are in UTC. Default: project.'),
  }),
  output: z.object({
    usage: z.array(
      z.object({
        key: z.string().nullable().describe('Id of the group, the model or the day; null if unknown.'),
        name: z
          .string()
          .nullable()
          .describe('Name of the project, droid of the session, or name of the token (admins only).'),
        ...counted,
      }),
    ),
    total: z.object(counted),
    truncated: z.boolean().describe('Whether there are more groups.'),
  }),
  run: async ({ managers, caller: { scope } }, input) => {
    if (input.project_id) await managers.projects.require(input.project_id)
    const project_id = input.project_id ?? (scope.kind === 'project' ? scope.project_id : undefined)
    return await managers.diagnostics.usage({
      ...input,
      project_id,
      // Tokens beyond the project are none of its business.
      token_names: scope.kind === 'admin',
    })
  },
})

export const usageTool = standalone('usage', usageAction, { project_id: '', since: '', group_by: '' })
