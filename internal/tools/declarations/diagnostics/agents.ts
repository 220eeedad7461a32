// Live sessions, what one of them does at the moment, and the skills that a droid finds.
import { z } from 'zod'
import { action } from '../../tool.ts'
import { exampleIds as ids, maybeTime, project_id, time, workspace_id } from '../fields.ts'
import { session_id } from '../session-fields.ts'

const tokens = { input_tokens: z.number(), output_tokens: z.number(), cost_usd: z.number() }

const agent = z.object({
  session_id: z.string(),
  parent_session_id: z.string().nullable(),
  depth: z.number(),
  project_id: z.string(),
  project_name: z.string(),
  workspace_id: z.string(),
  droid: z.string(),
  model: z.string().nullable(),
  status: z.string(),
  hibernated: z.boolean(),
  turns: z.number(),
  created_at: time,
  age_seconds: z.number(),
  last_event: z.object({ index: z.number(), type: z.string(), at: time }).nullable(),
  usage: z.object(tokens),
})

export const agentActions = {
  agents: action({
    about:
      'List the sessions that have not ended, as a tree: each is followed by its children, `depth` is its level.',
    brief: 'List live sessions as a tree.',
    needs: 'admin:read',
    example: {},
    input: z.object({
      project_id: project_id.optional().describe('Only sessions of this project.'),
      limit: z
        .int()
        .min(1)
        .max(500)
        .default(50)
        .describe('Maximum number of results, 1 to 500. Default: 50.'),
    }),
    output: z.object({ agents: z.array(agent), truncated: z.boolean() }),
    run: async ({ managers }, filter) => await managers.diagnostics.agents(filter),
  }),
  agent_state: action({
    about:
      'Get what a session does at the moment: its queue, the requests that it waits for, the position of its journal, and its processes with their CPU and memory use. Lists hold at most 100 entries, processes 200.',
    brief: 'Get queue, requests, journal and processes.',
    needs: 'admin:read',
    example: { session_id: ids.session_id },
    input: z.object({ session_id }),
    output: z.object({
      session_id: z.string(),
      project_id: z.string(),
      droid: z.string(),
      status: z.string(),
      reason: z.string().nullable(),
      queue: z.object({
        turn_id: z.string().nullable(),
        queued_turn_ids: z.array(z.string()),
        commands: z
          .array(z.object({ command_id: z.string(), kind: z.string(), created_at: time }))
          .describe('Commands that the supervisor has not accepted.'),
      }),
      pending_requests: z.array(
        z.object({
          request_id: z.string(),
          kind: z.enum(['caller_tool', 'permission']),
          tool: z.string().nullable(),
          created_at: time,
          deadline_at: maybeTime,
        }),
      ),
      journal: z.object({
        last_index: z.number().describe('Index of its last event.'),
        committed_seq: z.number().describe('Last sequence number that is committed.'),
        supervisor_seq: z.number().nullable().describe('Last sequence number in the journal.'),
        uncommitted: z.number().nullable(),
      }),
      supervisor: z.object({
        connected: z.boolean(),
        live: z.boolean().nullable().describe('Whether the droid is there to take prompts.'),
        reason: z.string().nullable().describe('Why there are no figures of the container.'),
      }),
      memory_mb: z.number().nullable(),
      process_count: z.number().nullable(),
      processes: z.array(
        z.object({
          pid: z.number(),
          ppid: z.number(),
          command: z.string(),
          cpu_seconds: z.number(),
          cpu_percent: z.number(),
          memory_mb: z.number(),
        }),
      ),
    }),
    run: async ({ managers }, { session_id }) => await managers.diagnostics.agentState(session_id),
  }),
  skills: action({
    about:
      'List the skills (`SKILL.md`) that a droid finds in a workspace, in its home directory, and in the image if the container is running. At most 200.',
    brief: 'List SKILL.md files.',
    needs: 'admin:read',
    example: { project_id: ids.project_id },
    input: z.object({ project_id, workspace_id: workspace_id.optional() }),
    output: z.object({
      skills: z.array(
        z.object({
          name: z.string(),
          description: z.string(),
          source: z.enum(['workspace', 'home', 'image']),
          path: z.string(),
        }),
      ),
      truncated: z.boolean(),
      image_read: z.boolean().describe('False if the container is not running.'),
    }),
    run: async ({ managers }, { project_id, workspace_id }) =>
      await managers.diagnostics.skills(project_id, workspace_id),
  }),
}
