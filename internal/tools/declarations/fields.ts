// Input and output fields that several tools share, described once.
import { z } from 'zod'
import { limitsSchema } from '../../config/limits.ts'
import { isProjectReference, patterns } from '../../ids.ts'
import { workspaceStates } from '../../store/schema.ts'

/** Ids for the examples of actions. */
export const exampleIds = {
  project_id: '3f2b8c1a-9d4e-4f6a-8b7c-1d2e3f4a5b6c',
  session_id: 'gogol_0123456789abcdef0123',
  exec_id: 'exec_0123456789abcdef0123',
  approval_id: 'apr_0123456789abcdef0123',
  schedule_id: 'sch_0123456789abcdef0123',
  token_id: 'tok_0123456789abcdef0123',
  workspace_id: 'review',
  request_id: '7c9e6679-7425-40de-944b-e07fc1f90ae7',
}
export const project_id = z
  .string()
  .refine(isProjectReference, 'is not a project id (a UUID) or name')
  .describe('Id (a UUID) or name of the project.')
export const workspace_id = z
  .string()
  .regex(patterns.workspace, 'is not a workspace id (lower-case letters, digits, - and _; at most 63)')
  .describe('Name of the workspace, which is its id. Default: the default workspace of the project.')
/** In results: the project by id and name. */
export const projectOutput = { project_id: z.string(), project_name: z.string() }
/** A scope with a project by name is longer than one with an id. */
export const scope = z.string().max(200)
export const token_id = z
  .string()
  .regex(patterns.token, 'is not a token id (tok_…)')
  .describe('Public id of the token (tok_…), as `token list` returns it.')
export const limit = z
  .int()
  .min(1)
  .max(200)
  .default(50)
  .describe('Maximum number of results, 1 to 200. Default: 50.')
export const cursor = z
  .string()
  .max(1000)
  .optional()
  .describe('`next_cursor` of the previous page. Default: the first page.')
/** For the `briefs` of a tool whose lists have pages. */
export const pagingBriefs = { project_id: '', limit: '', cursor: '' }
export const next_cursor = z
  .string()
  .nullable()
  .describe('Pass it as `cursor` to get the next page; null on the last page.')

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
  .describe('Limits of this project. A limit that is left out has the default of the config.')

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
    '`pending`: git is set up at the next start of the container. `preparing`: git is being set up or `remote_url` is being cloned. `ready`: usable. `failed`: see `prepare_error`; `container start` tries again.',
  )
