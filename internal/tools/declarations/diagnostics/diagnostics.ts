import { z } from 'zod'
import { action, tool } from '../../tool.ts'
import { cursor, next_cursor, pagingBriefs, project_id, time } from '../fields.ts'
import { session_id } from '../session-fields.ts'
import { agentActions } from './agents.ts'
import { since } from './times.ts'
import { toolActions } from './tools.ts'
import { usageAction } from './usage.ts'

const levels = ['debug', 'info', 'warn', 'error'] as const

const audited = z.object({
  at: time,
  caller_kind: z.string(),
  caller_id: z.string(),
  token_id: z.string().nullable(),
  session_id: z.string().nullable(),
  via: z.string(),
  tool: z.string(),
  action: z.string(),
  project_id: z.string().nullable(),
  outcome: z.string(),
  milliseconds: z.number(),
  request_id: z.string(),
  reason: z.string().nullable(),
})

const checked = {
  ok: z.boolean(),
  latency_ms: z.number(),
  reason: z.string().nullable().describe('Why it does not answer.'),
}

export const diagnosticsTool = tool({
  name: 'diagnostics',
  about:
    'Look into the running server: health, log, database, sessions, tools, usage, configuration and audit. Only `run_tool` can change anything.',
  brief: 'Look into the running server.',
  briefs: {
    ...pagingBriefs,
    level: 'Minimum',
    grep: 'Substring',
    since: 'ISO 8601',
    session_id: '',
    request_id: '',
    query: 'One read-only statement over the views of schema diagnostics',
    params: 'Values of $1, $2, …',
    actor: 'Token, session or caller id',
    tool: '',
    project_id: '',
    outcome: 'ok, or an error kind',
    arguments: '',
    workspace_id: '',
    group_by: '',
  },
  actions: {
    health: action({
      about:
        'Get the state of the server: version, uptime, memory, event-loop delay, database, engine, disk, relay, streams, sessions by status, schedules and configured providers.',
      brief: 'Get uptime, memory, database, engine, sessions.',
      needs: 'admin:read',
      example: {},
      input: z.object({}),
      output: z.object({
        version: z.string(),
        node: z.string(),
        uptime_seconds: z.number(),
        memory: z.object({ rss_mb: z.number(), heap_used_mb: z.number(), heap_total_mb: z.number() }),
        event_loop_delay_ms: z.object({ p50: z.number(), p99: z.number(), max: z.number() }),
        database: z.object({ kind: z.enum(['embedded', 'external']), ...checked }),
        engine: z.object({ ...checked, version: z.string().nullable() }),
        disk: z.object({ free_mb: z.number().nullable(), min_free_mb: z.number() }),
        pool: z
          .object({ open: z.number(), idle: z.number(), waiting: z.number(), max: z.number() })
          .describe('Database connections; `waiting` are statements that wait for one.'),
        relay: z
          .object({ sockets: z.number(), supervisors: z.number(), connections: z.number(), http: z.number() })
          .describe('Sockets of containers, connected supervisors, connections, and those that use HTTP.'),
        streams: z.object({ open: z.number(), max: z.number() }).describe('Event streams of all callers.'),
        sessions: z.record(z.string(), z.number()).nullable().describe('Number of sessions by status.'),
        schedules: z
          .object({
            enabled: z.number(),
            due: z.number().describe('Due, but not claimed.'),
            runs_queued: z.number(),
            runs_running: z.number(),
          })
          .nullable(),
        providers: z.array(z.string()),
      }),
      run: async ({ managers }) => await managers.diagnostics.health(),
    }),
    server_log: action({
      about:
        'Read the last lines of the server log, oldest first; use it to find the cause of an error by its id or request id. `dropped` counts older lines that are no longer kept.',
      brief: 'Read the server log.',
      needs: 'admin:read',
      example: { level: 'warn', limit: 20 },
      input: z.object({
        level: z.enum(levels).default('info').describe('Minimum level. Default: info.'),
        grep: z
          .string()
          .min(1)
          .max(200)
          .optional()
          .describe('Only lines that contain this text, in any case.'),
        since: since.optional().describe('Only lines at or after this time (ISO 8601).'),
        session_id: session_id.optional().describe('Only lines about this session.'),
        request_id: z.string().max(100).optional().describe('Only lines about this request (req_…).'),
        limit: z
          .int()
          .min(1)
          .max(500)
          .default(50)
          .describe('Maximum number of lines, 1 to 500. Default: 50.'),
      }),
      output: z.object({
        entries: z.array(z.looseObject({ at: z.string(), level: z.string(), message: z.string() })),
        dropped: z.number(),
      }),
      run: async ({ managers }, input) => managers.diagnostics.serverLog(input),
    }),
    db_query: action({
      about:
        'Run one read-only SQL statement on the database of the server and return its rows. Tables are the views of schema `diagnostics`, without hashes of tokens and keys. A statement may take 5 s and return 4 MiB.',
      brief: 'Run one read-only SQL statement.',
      needs: 'admin:read',
      example: { query: 'select status, count(*) from sessions group by status' },
      input: z.object({
        query: z.string().min(1).max(20_000).describe('The statement, at most 20,000 characters.'),
        params: z
          .array(z.union([z.string(), z.number(), z.boolean(), z.null()]))
          .max(100)
          .default([])
          .describe('Values of $1, $2, and so on.'),
        limit: z
          .int()
          .min(1)
          .max(1000)
          .default(100)
          .describe('Maximum number of rows, 1 to 1,000. Default: 100.'),
      }),
      output: z.object({
        columns: z.array(z.string()),
        rows: z.array(z.array(z.unknown())),
        truncated: z.boolean().describe('There are more rows than `limit`.'),
        duration_ms: z.number(),
      }),
      run: async ({ managers, signal }, input) => await managers.diagnostics.query(input, signal),
    }),
    config: action({
      about:
        'Get the effective configuration without secrets, and where each value comes from: the file, the environment or the default.',
      brief: 'Get the configuration without secrets.',
      needs: 'admin:read',
      example: {},
      input: z.object({}),
      output: z.object({
        config: z.record(z.string(), z.unknown()),
        sources: z.record(z.string(), z.string()),
      }),
      run: async ({ managers }) => managers.diagnostics.config(),
    }),
    audit: action({
      about: 'List the calls of all callers, newest first, with their outcome and duration.',
      brief: 'List calls, newest first.',
      needs: 'admin:read',
      example: { tool: 'container', outcome: 'ok', limit: 20 },
      input: z.object({
        actor: z.string().max(200).optional().describe('Only calls of this token, session or caller id.'),
        tool: z.string().max(80).optional().describe('Only calls of this tool.'),
        project_id: project_id.optional().describe('Only calls that concern this project.'),
        outcome: z
          .string()
          .max(80)
          .optional()
          .describe('Only calls with this outcome: `ok`, or an error kind.'),
        since: since.optional().describe('Only calls at or after this time (ISO 8601).'),
        limit: z
          .int()
          .min(1)
          .max(500)
          .default(50)
          .describe('Maximum number of results, 1 to 500. Default: 50.'),
        cursor,
      }),
      output: z.object({ calls: z.array(audited), next_cursor }),
      run: async ({ managers }, filter) => {
        const { items, next_cursor } = await managers.diagnostics.audit(filter)
        return { calls: items.map((row) => audited.parse(row)), next_cursor }
      },
    }),
    ...toolActions,
    ...agentActions,
    usage: { ...usageAction, needs: 'admin:read' },
  },
})
