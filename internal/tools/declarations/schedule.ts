import { z } from 'zod'
import { patterns } from '../../ids.ts'
import { action, tool } from '../tool.ts'
import { cursor, limit, maybeTime, next_cursor, project_id, time, workspace_id } from './fields.ts'

const schedule_id = z
  .string()
  .regex(patterns.schedule, 'is not a schedule id (sch_…)')
  .describe('The schedule.')
const name = z.string().trim().min(1).max(200).describe('What people call it.')
const cron_expr = z
  .string()
  .min(1)
  .max(200)
  .describe(
    'Five fields (minute hour day month weekday), six with seconds in front, or @hourly, @daily, @weekly, @monthly, @yearly.',
  )
const prompt = z
  .string()
  .min(1)
  .max(1_000_000)
  .describe('What the droid shall do. For the droid `shell`: a bash script.')
const targets = z
  .array(z.strictObject({ project_id, workspace_id: workspace_id.optional() }))
  .min(1)
  .max(100)
  .describe('Where it runs: projects, each with a workspace or its default one.')
const time_zone = z
  .string()
  .min(1)
  .max(100)
  .describe('In which the expression is read: a name of the IANA database.')
const enabled = z.boolean().describe('Whether it runs by itself. It can be triggered in any case.')
const overlap_behavior = z
  .enum(['skip', 'queue', 'parallel'])
  .describe('What becomes of a run that is due while one of the same target is not over.')
const session_behavior = z
  .enum(['resume', 'new'])
  .describe('Whether all runs of a target are one conversation, or each its own.')
const catch_up = z
  .enum(['skip', 'once'])
  .describe('What becomes of the times at which no server was running: nothing, or one run for all of them.')
const droid = z.string().max(32)
const next = (count: number) =>
  z
    .int()
    .min(0)
    .max(100)
    .default(count)
    .describe('How many of the next times to show; fewer if they take long to find.')

const statuses = ['queued', 'running', 'success', 'failed', 'skipped', 'cancelled'] as const
const run = z.object({
  run_id: z.string(),
  schedule_id: z.string(),
  project_id: z.string(),
  workspace_id: z.string().nullable(),
  trigger: z.enum(['cron', 'catch_up', 'manual']),
  status: z.enum(statuses),
  due_at: time,
  started_at: maybeTime,
  ended_at: maybeTime,
  duration_ms: z.number().nullable(),
  session_id: z.string().nullable(),
  output: z.string().nullable().describe('The final text.'),
  error: z.string().nullable().describe('Why it failed, was skipped or was cancelled.'),
})
const schedule = z.object({
  schedule_id: z.string(),
  name: z.string(),
  cron_expr: z.string(),
  time_zone: z.string(),
  enabled: z.boolean(),
  disabled_reason: z.string().nullable().describe('Why it was disabled, if not by somebody.'),
  prompt: z.string(),
  overlap_behavior,
  session_behavior,
  catch_up,
  droid: z.string().nullable(),
  scope: z.string().describe('What its runs may do.'),
  token_id: z.string().nullable().describe('The token on whose behalf it runs.'),
  created_by: z.string(),
  created_at: time,
  updated_at: time,
  next_run_at: maybeTime,
  next_runs: z.array(time),
  targets: z.array(
    z.object({
      project_id: z.string(),
      workspace_id: z.string().nullable(),
      session_id: z.string().nullable().describe('The session that it keeps.'),
      last_run: run.nullable(),
    }),
  ),
})

export const scheduleTool = tool({
  name: 'schedule',
  about: 'Prompts that are given to sessions at certain times.',
  actions: {
    create: action({
      about: 'Make a schedule. It runs with the scope of this token, as long as the token counts.',
      needs: 'project:write',
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
        droid: droid.optional().describe("The project's, then the config's, if left out."),
        next: next(3),
      }),
      output: schedule,
      run: async ({ managers, caller }, { next, ...fields }) =>
        await managers.schedules.create(caller, fields, next),
    }),
    list: action({
      about: 'Schedules, oldest first.',
      needs: 'project:read',
      input: z.object({
        project_id: project_id
          .optional()
          .describe('With this project among their targets; all that this token may see if left out.'),
        enabled: z.boolean().optional().describe('Only those that run by themselves, or only the others.'),
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
      about: 'One schedule, with the last run of every target and the next times.',
      needs: 'project:read',
      input: z.object({ schedule_id, next: next(3) }),
      output: schedule,
      run: async ({ managers }, input) => await managers.schedules.get(input.schedule_id, input.next),
    }),
    update: action({
      about: 'Change a schedule, at once. Runs that are under way go on as they are.',
      needs: 'project:write',
      idempotent: true,
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
        droid: droid.nullable().optional().describe("Null for the project's own."),
        next: next(3),
      }),
      output: schedule,
      run: async ({ managers, caller }, { schedule_id, next, ...change }) =>
        await managers.schedules.update(caller, schedule_id, change, next),
    }),
    delete: action({
      about: 'Remove a schedule and its history. A run that is under way goes on in its session.',
      needs: 'project:write',
      destructive: true,
      input: z.object({ schedule_id }),
      output: z.object({ schedule_id: z.string(), deleted: z.literal(true) }),
      run: async ({ managers }, input) => await managers.schedules.remove(input.schedule_id),
    }),
    trigger: action({
      about: 'Run it now, on every target, by the same rules as when it is due.',
      needs: 'project:write',
      input: z.object({ schedule_id }),
      output: z.object({ runs: z.array(run) }),
      run: async ({ managers }, input) => await managers.schedules.trigger(input.schedule_id),
    }),
    history: action({
      about: 'Runs of a schedule, newest first.',
      needs: 'project:read',
      input: z.object({
        schedule_id,
        project_id: project_id.optional().describe('Only of this target.'),
        status: z.enum(statuses).optional().describe('Only these.'),
        limit,
        cursor,
      }),
      output: z.object({ runs: z.array(run), next_cursor }),
      run: async ({ managers }, input) => await managers.schedules.history(input),
    }),
    preview: action({
      about: 'The next times of an expression, without a schedule.',
      needs: 'global:read',
      input: z.object({ cron_expr, time_zone: time_zone.default('UTC'), next: next(5) }),
      output: z.object({ cron_expr: z.string(), time_zone: z.string(), next_runs: z.array(time) }),
      run: async ({ managers, caller }, { next, ...timing }) =>
        await managers.schedules.preview(caller, timing, next),
    }),
  },
})
