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
  workspace_id,
} from './fields.ts'

const schedule_id = z
  .string()
  .regex(patterns.schedule, 'is not a schedule id (sch_…)')
  .describe('Id of the schedule (sch_…), as `schedule list` returns it.')
const name = z.string().trim().min(1).max(200).describe('Name of the schedule, at most 200 characters.')
const cron_expr = z
  .string()
  .min(1)
  .max(200)
  .describe(
    'Cron expression: five fields (minute hour day month weekday), six with seconds first, or @hourly, @daily, @weekly, @monthly, @yearly.',
  )
const prompt = z
  .string()
  .min(1)
  .max(1_000_000)
  .describe('Prompt for the droid, at most 1,000,000 characters; a bash script for the droid `shell`.')
const targets = z
  .array(z.strictObject({ project_id, workspace_id: workspace_id.optional() }))
  .min(1)
  .max(100)
  .describe('Where it runs, 1 to 100 entries: a project, and a workspace unless the default one is meant.')
const time_zone = z
  .string()
  .min(1)
  .max(100)
  .describe(
    'IANA time zone of the expression, such as Europe/Berlin. Default when the schedule is created: UTC.',
  )
const enabled = z
  .boolean()
  .describe(
    'Whether it runs at its times; `trigger` works in any case. Default when the schedule is created: true.',
  )
const overlap_behavior = z
  .enum(['skip', 'queue', 'parallel'])
  .describe(
    'What happens when a run is due while another run of the same target is in progress. Default when the schedule is created: skip.',
  )
const session_behavior = z
  .enum(['resume', 'new'])
  .describe(
    '`resume`: all runs of a target continue one session. `new`: each run has its own session. Default when the schedule is created: resume.',
  )
const catch_up = z
  .enum(['skip', 'once'])
  .describe(
    'For times at which no server was running: `skip` them, or run `once` for all of them. Default when the schedule is created: skip.',
  )
const droid = z.string().max(32)
const next = (count: number) =>
  z
    .int()
    .min(0)
    .max(100)
    .default(count)
    .describe(
      `Number of upcoming times in the result, at most 100. Default: ${count}. Fewer are returned if they take too long to compute.`,
    )

const statuses = ['queued', 'running', 'success', 'failed', 'skipped', 'cancelled'] as const
const run = z.object({
  run_id: z.string(),
  schedule_id: z.string(),
  ...projectOutput,
  workspace_id: z.string().nullable(),
  trigger: z.enum(['cron', 'catch_up', 'manual']),
  status: z.enum(statuses),
  due_at: time,
  started_at: maybeTime,
  ended_at: maybeTime,
  duration_ms: z.number().nullable(),
  session_id: z.string().nullable(),
  output: z.string().nullable().describe('Final text of the session.'),
  error: z.string().nullable().describe('Why it failed, was skipped or was cancelled.'),
})
const schedule = z.object({
  schedule_id: z.string(),
  name: z.string(),
  cron_expr: z.string(),
  time_zone: z.string(),
  enabled: z.boolean(),
  disabled_reason: z.string().nullable().describe('Why the server disabled it; null if a caller did.'),
  prompt: z.string(),
  overlap_behavior,
  session_behavior,
  catch_up,
  droid: z.string().nullable(),
  scope: z.string().describe('Scope of its runs.'),
  token_id: z.string().nullable().describe('The token on whose behalf it runs.'),
  created_by: z.string(),
  created_at: time,
  updated_at: time,
  next_run_at: maybeTime,
  next_runs: z.array(time),
  targets: z.array(
    z.object({
      ...projectOutput,
      workspace_id: z.string().nullable(),
      session_id: z.string().nullable().describe('Session that its runs resume.'),
      last_run: run.nullable(),
    }),
  ),
})

export const scheduleTool = tool({
  name: 'schedule',
  about: 'Prompts that are sent to sessions at scheduled times.',
  brief: 'Prompts sent at scheduled times.',
  unlisted: ['status', 'next'],
  briefs: {
    ...pagingBriefs,
    name: '',
    cron_expr: '5 fields, 6 with seconds first, or @daily etc.',
    prompt: 'Bash script for the droid shell',
    targets: '',
    time_zone: 'IANA',
    enabled: '',
    overlap_behavior: 'While a run is in progress',
    session_behavior: '',
    catch_up: 'Missed while no server ran',
    droid: "Default or null: the project's",
    schedule_id: '',
  },
  actions: {
    create: action({
      about:
        'Create a schedule and return it with its next times. It runs with the scope of this token, and is disabled when the token expires or is revoked.',
      brief: 'Create; it runs with the scope of this token.',
      needs: 'project:write',
      example: {
        name: 'nightly',
        cron_expr: '0 3 * * *',
        prompt: 'fix the failing test',
        targets: [{ project_id: ids.project_id }],
      },
      input: z.object({
        name,
        cron_expr,
        prompt,
        targets,
        time_zone: time_zone.default('UTC'),
        enabled: enabled.default(true),
        overlap_behavior: overlap_behavior.default('skip'),
        session_behavior: session_behavior.default('resume'),
        catch_up: catch_up.default('skip'),
        droid: droid
          .optional()
          .describe(
            'Droid of its runs. Default: the droid of the project, then `default_droid` of the config.',
          ),
        next: next(3),
      }),
      output: schedule,
      run: async ({ managers, caller }, { next, ...fields }) =>
        await managers.schedules.create(caller, fields, next),
    }),
    list: action({
      about: 'List schedules, oldest first, with the last run of each target and the next times.',
      brief: 'List with last runs, oldest first.',
      needs: 'project:read',
      example: { project_id: ids.project_id },
      input: z.object({
        project_id: project_id
          .optional()
          .describe(
            'Only schedules with this project among their targets. Default: all that this token may see.',
          ),
        enabled: z.boolean().optional().describe('Only enabled (true) or only disabled (false) schedules.'),
        next: next(1),
        limit,
        cursor,
      }),
      output: z.object({ schedules: z.array(schedule), next_cursor }),
      run: async ({ managers, caller: { scope } }, input) => {
        if (input.project_id) await managers.projects.require(input.project_id)
        return await managers.schedules.list({
          ...input,
          only_project: scope.kind === 'project' ? scope.project_id : undefined,
        })
      },
    }),
    get: action({
      about: 'Get one schedule with the last run of each target and the next times.',
      brief: 'Get one with last runs.',
      needs: 'project:read',
      example: { schedule_id: ids.schedule_id },
      input: z.object({ schedule_id, next: next(3) }),
      output: schedule,
      run: async ({ managers }, input) => await managers.schedules.get(input.schedule_id, input.next),
    }),
    update: action({
      about:
        'Change a schedule at once and return it; fields that are left out stay as they are. Runs in progress continue unchanged.',
      brief: 'Change the given fields.',
      needs: 'project:write',
      idempotent: true,
      example: { schedule_id: ids.schedule_id, enabled: false },
      input: z.object({
        schedule_id,
        name: name.optional(),
        cron_expr: cron_expr.optional(),
        prompt: prompt.optional(),
        targets: targets.optional(),
        time_zone: time_zone.optional(),
        enabled: enabled.optional(),
        overlap_behavior: overlap_behavior.optional(),
        session_behavior: session_behavior.optional(),
        catch_up: catch_up.optional(),
        droid: droid.nullable().optional().describe('Droid of its runs; null for the droid of the project.'),
        next: next(3),
      }),
      output: schedule,
      run: async ({ managers, caller }, { schedule_id, next, ...change }) =>
        await managers.schedules.update(caller, schedule_id, change, next),
    }),
    delete: action({
      about: 'Delete a schedule and its history. A run in progress continues in its session.',
      brief: 'Delete with its history.',
      needs: 'project:write',
      destructive: true,
      example: { schedule_id: ids.schedule_id },
      input: z.object({ schedule_id }),
      output: z.object({ schedule_id: z.string(), deleted: z.literal(true) }),
      run: async ({ managers }, input) => await managers.schedules.remove(input.schedule_id),
    }),
    trigger: action({
      about:
        'Run a schedule now on all its targets, with the same overlap rules as at its times, and return the runs.',
      brief: 'Run now on all targets.',
      needs: 'project:write',
      example: { schedule_id: ids.schedule_id },
      input: z.object({ schedule_id }),
      output: z.object({ runs: z.array(run) }),
      run: async ({ managers }, input) => await managers.schedules.trigger(input.schedule_id),
    }),
    history: action({
      about:
        'List the runs of a schedule, newest first, with status, output and error; use it to see whether it worked.',
      brief: 'List runs, newest first.',
      needs: 'project:read',
      example: { schedule_id: ids.schedule_id },
      input: z.object({
        schedule_id,
        project_id: project_id.optional().describe('Only runs of this target.'),
        status: z.enum(statuses).optional().describe('Only runs with this status.'),
        limit,
        cursor,
      }),
      output: z.object({ runs: z.array(run), next_cursor }),
      run: async ({ managers }, input) => await managers.schedules.history(input),
    }),
    preview: action({
      about: 'Compute the next times of a cron expression without creating a schedule.',
      brief: 'Compute next times.',
      needs: 'global:read',
      example: { cron_expr: '0 3 * * *' },
      input: z.object({ cron_expr, time_zone: time_zone.default('UTC'), next: next(5) }),
      output: z.object({ cron_expr: z.string(), time_zone: z.string(), next_runs: z.array(time) }),
      run: async ({ managers, caller }, { next, ...timing }) =>
        await managers.schedules.preview(caller, timing, next),
    }),
  },
})
