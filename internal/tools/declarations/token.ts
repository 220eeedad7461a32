import { z } from 'zod'
import { action, tool } from '../tool.ts'
import { cursor, limit, maybeTime, next_cursor, time, token_id } from './fields.ts'

const shown = {
  token_id: z.string(),
  name: z.string(),
  scope: z.string(),
  created_at: time,
  created_by: z.string(),
  expires_at: maybeTime,
  revoked_at: maybeTime,
  last_used_at: maybeTime,
  parent_session_id: z
    .string()
    .nullable()
    .describe('The session through which it was minted: it is revoked with it.'),
  parent_token_id: z.string().nullable().describe('The token behind that session: it is revoked with it.'),
}

export const tokenTool = tool({
  name: 'token',
  about: 'Bearer tokens for callers, each with one scope.',
  actions: {
    create: action({
      about:
        'Make a token. Its secret is in this answer and nowhere else. A token that a session mints is revoked with the session and with the token behind it.',
      needs: 'admin',
      input: z.object({
        name: z.string().min(1).max(100).describe('Who or what it is for.'),
        scope: z.string().max(100).describe('admin, admin:ro, project:<uuid> or project:<uuid>:ro.'),
        expires_in_hours: z
          .number()
          .min(0.001)
          .max(876_000)
          .optional()
          .describe(
            'It never expires if left out; one that a session mints expires with the token behind the session at the latest.',
          ),
      }),
      output: z.object({ ...shown, token: z.string().describe('The secret, shown once.') }),
      run: async ({ managers, caller }, input) => await managers.tokens.create(caller, input),
    }),
    list: action({
      about: 'All tokens, without their secrets.',
      needs: 'admin',
      idempotent: true,
      input: z.object({ limit, cursor }),
      output: z.object({ tokens: z.array(z.object(shown)), next_cursor }),
      run: async ({ managers }, page) => await managers.tokens.list(page),
    }),
    revoke: action({
      about: 'End a token, at once and for good.',
      needs: 'admin',
      destructive: true,
      idempotent: true,
      input: z.object({ token_id }),
      output: z.object(shown),
      run: async ({ managers }, input) => await managers.tokens.revoke(input.token_id),
    }),
  },
})
