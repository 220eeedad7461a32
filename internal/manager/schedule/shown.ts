// Schedules and runs as callers see them.
import type { RunRow } from '../../store/rows/schedule/runs.ts'
import type { ScheduleRow, TargetRow } from '../../store/rows/schedule/schedules.ts'

/** The name of a project. */
export type NameOf = (project_id: string) => string

export const shownRun = (row: RunRow, nameOf: NameOf) => ({
  run_id: row.id,
  schedule_id: row.schedule_id,
  project_id: row.project_id,
  project_name: nameOf(row.project_id),
  workspace_id: row.workspace_id,
  trigger: row.trigger,
  status: row.status,
  due_at: row.due_at,
  started_at: row.started_at,
  ended_at: row.ended_at,
  duration_ms:
    row.started_at !== null && row.ended_at !== null
      ? Date.parse(row.ended_at) - Date.parse(row.started_at)
      : null,
  session_id: row.session_id,
  output: row.output,
  error: row.error,
})

export const shownSchedule = (
  row: ScheduleRow,
  targets: TargetRow[],
  last: Map<number, RunRow>,
  next_runs: string[],
  nameOf: NameOf,
) => ({
  schedule_id: row.id,
  name: row.name,
  cron_expr: row.cron_expr,
  time_zone: row.time_zone,
  enabled: row.enabled,
  disabled_reason: row.disabled_reason,
  prompt: row.prompt,
  overlap_behavior: row.overlap_behavior,
  session_behavior: row.session_behavior,
  catch_up: row.catch_up,
  droid: row.droid,
  scope: row.scope,
  token_id: row.token_id,
  created_by: row.created_by,
  created_at: row.created_at,
  updated_at: row.updated_at,
  next_run_at: row.next_run_at,
  next_runs,
  targets: targets.map((target) => {
    const run = last.get(target.id)
    return {
      project_id: target.project_id,
      project_name: nameOf(target.project_id),
      workspace_id: target.workspace_id,
      session_id: target.session_id,
      last_run: run ? shownRun(run, nameOf) : null,
    }
  }),
})
