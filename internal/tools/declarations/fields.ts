// Input and output fields that several tools share, described once.
import { z } from 'zod'
import { limitsSchema } from '../../config/limits.ts'
import { patterns } from '../../ids.ts'
import { workspaceStates } from '../../store/schema.ts'

export const project_id = z
  .string()
  .regex(patterns.project, 'is not a project id (a UUID)')
  .describe('The project.')
export const workspace_id = z
  .string()
  .regex(patterns.workspace, 'is not a workspace id (lower-case letters, digits, - and _; at most 63)')
  .describe('The workspace; the default one if left out.')
export const token_id = z
  .string()
  .regex(patterns.token, 'is not a token id (tok_…)')
  .describe('The token, by its public id.')
export const limit = z.int().min(1).max(200).default(50).describe('How many at most.')
export const cursor = z.string().max(1000).optional().describe('`next_cursor` of the page before.')
export const next_cursor = z.string().nullable().describe('Where the next page starts; null on the last one.')

/** Defaults belong to the config, so a project's own limits have none. */
const { shape } = limitsSchema
export const limits = z
  .strictObject(
    Object.fromEntries(
      Object.entries(shape).map(([name, field]) => [
        name,
        field
          .unwrap()
          .optional()
          .describe(field.description ?? ''),
      ]),
    ) as { [K in keyof typeof shape]: z.ZodOptional<ReturnType<(typeof shape)[K]['unwrap']>> },
  )
  .describe('Limits of this project; what is left out follows the config.')

export const limitsOutput = z.object({
  max_recursion_depth: z.number(),
  max_agents_per_session: z.number(),
  max_active_sessions: z.number(),
  max_spawns_per_minute: z.number(),
  max_cost_usd: z.number(),
  memory_mb: z.number(),
  cpus: z.number(),
  pids: z.number(),
  session_mb: z.number(),
  disk_mb: z.number(),
})

const at = z.string().describe('ISO 8601.')
export const time = at
export const maybeTime = at.nullable()

export const workspaceState = z
  .enum(workspaceStates)
  .describe(
    '`pending`: git is set up in it at the next start of the container. `preparing`: that, or the clone of `remote_url`, is under way. `ready`. `failed`: `prepare_error` says why, and `container start` tries again.',
  )
