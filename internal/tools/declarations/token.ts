import { z } from 'zod'
import { action, tool } from '../tool.ts'
import {
  cursor,
  exampleIds as ids,
  limit,
  maybeTime,
  next_cursor,
  pagingBriefs,
  scope,
  time,
  token_id,
} from './fields.ts'

const shown = {
  token_id: z.string(),
  name: z.string(),
  scope: z.string(),
  project_name: z
    .string()
    .nullable()
    .describe('Of the project of the scope; null for a scope of all projects.'),
  created_at: time,
  created_by: z.string(),
  expires_at: maybeTime,
  revoked_at: maybeTime,
  last_used_at: maybeTime,
  parent_session_id: z
    .string()
    .nullable()
    .describe('Session that created the token; the token is revoked when that session ends.'),
  parent_token_id: z
    .string()
    .nullable()
    .describe('Token that spawned that session; this token is revoked with it.'),
}

export const tokenTool = tool({
  name: 'token',
  about: 'Bearer tokens for callers. Each token has one scope.',
  briefs: {
    ...pagingBriefs,
    name: 'Purpose',
    scope: 'admin, admin:ro, project:<id or name> or project:<id or name>:ro',
    expires_in_hours: 'Default: never',
    token_id: 'tok_…',
  },
  actions: {
    create: action({
      about:
        'Create a token and return it with its secret, which is not shown again. A token that a session creates is revoked when the session ends, or with the token that spawned the session.',
      brief: 'Create; the secret is returned once.',
      needs: 'admin',
      example: { name: 'site', scope: 'admin:ro' },
      input: z.object({
        name: z.string().min(1).max(100).describe('Who or what the token is for, at most 100 characters.'),
        scope: scope.describe(
          'Scope: admin, admin:ro, project:<id or name> or project:<id or name>:ro; stored with the id.',
        ),
        expires_in_hours: z
          .number()
          .min(0.001)
          .max(876_000)
          .optional()
          .describe(
            'Hours until the token expires. Default: it never expires. A token that a session creates expires no later than the token that spawned the session.',
          ),
      }),
      output: z.object({ ...shown, token: z.string().describe('The secret, shown once.') }),
      run: async ({ managers, caller }, input) => await managers.tokens.create(caller, input),
    }),
    list: action({
      about: 'List all tokens, without their secrets.',
      brief: 'List without secrets.',
      needs: 'admin',
      idempotent: true,
      example: {},
      input: z.object({ limit, cursor }),
      output: z.object({ tokens: z.array(z.object(shown)), next_cursor }),
      run: async ({ managers }, page) => await managers.tokens.list(page),
    }),
    revoke: action({
      about: 'Revoke a token permanently; its requests, streams and session keys end at once.',
      brief: 'Revoke for good; its requests and streams end.',
      needs: 'admin',
      destructive: true,
      idempotent: true,
      example: { token_id: ids.token_id },
      input: z.object({ token_id }),
      output: z.object(shown),
      run: async ({ managers }, input) => await managers.tokens.revoke(input.token_id),
    }),
  },
})
