// Commands in a container: those that the call waits for, and detached ones.
import { z } from 'zod'
import { Fault } from '../../fault.ts'
import { patterns } from '../../ids.ts'
import { killSignals } from '../../protocol/messages.ts'
import { execStatuses } from '../../store/schema.ts'
import { reporting } from '../reporting.ts'
import { action } from '../tool.ts'
import { cursor, exampleIds as ids, limit, maybeTime, next_cursor, project_id, time } from './fields.ts'

const attachedSeconds = { usual: 60, most: 86_400 }
const detachedSeconds = { usual: 3600, most: 7 * 86_400 }

const exec_id = z.string().regex(patterns.exec, 'is not the id of a command (exec_…)')
const given = exec_id.describe('Id of the detached command (exec_…), as `exec` with `detach` returns it.')

const shown = z.object({
  exec_id: z.string(),
  project_id: z.string(),
  status: z
    .enum(execStatuses)
    .describe(
      '`running`; `exited` by itself; `timed_out` and killed; `killed` by `exec_kill`; `lost` if the container ended first or the command was never started (see `reason`).',
    ),
  exit_code: z.number().nullable().describe('128 plus the signal number if a signal ended the command.'),
  reason: z.string().nullable(),
  command: z.string().describe('Truncated to 4,000 characters.'),
  working_dir: z.string().nullable(),
  created_by: z.string(),
  started_at: time,
  deadline_at: time.describe('When the command is killed if it still runs.'),
  ended_at: maybeTime,
  stdout_bytes: z
    .number()
    .nullable()
    .describe('Bytes written in total, including output that is not stored; null while the command runs.'),
  stderr_bytes: z.number().nullable(),
})

function secondsOf(given: number | undefined, { usual, most }: { usual: number; most: number }): number {
  if (given !== undefined && given > most)
    throw new Fault('invalid', `timeout_seconds must be at most ${most}`, {
      hint: most === attachedSeconds.most ? 'a command with `detach` may run for up to 7 days' : '',
    })
  return given ?? usual
}

export const execActions = {
  exec: action({
    about:
      'Run a command in the container and return its exit code, stdout and stderr; with `detach`, return an `exec_id` at once. Starts the container if it is stopped. On timeout, or if the call is cancelled or disconnected, the command and all its child processes are killed. Output is sent as progress while the call waits.',
    brief: 'Run a command; starts the container if needed.',
    needs: 'project:write',
    destructive: true,
    example: { project_id: ids.project_id, command: 'ls -la' },
    input: z.object({
      project_id,
      command: z
        .union([z.string().min(1).max(200_000), z.array(z.string().max(100_000)).min(1).max(1000)])
        .describe('A string runs with `bash -lc`; an array is executed directly, without a shell.'),
      working_dir: z
        .string()
        .min(1)
        .max(4000)
        .regex(/^\//, 'must be an absolute path')
        .optional()
        .describe('Absolute path. Default: the default workspace.'),
      env: z
        .record(
          z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'is not a variable name'),
          z.string().max(100_000),
        )
        .optional()
        .describe('Additional environment variables.'),
      stdin: z
        .string()
        .max(2_000_000)
        .optional()
        .describe('Written to standard input, which is then closed; at most 2,000,000 characters.'),
      timeout_seconds: z
        .number()
        .min(0.1)
        .max(detachedSeconds.most)
        .optional()
        .describe(
          'Seconds after which the command is killed. Default: 60, at most 86,400; with `detach`, default 3,600, at most 604,800.',
        ),
      user: z
        .string()
        .max(100)
        .regex(/^[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?$/, 'is not a user name or id')
        .optional()
        .describe(
          "Only the container's own user is accepted, as uid, `uid:gid` or its name in the image. Every command runs as that user, without supplementary groups.",
        ),
      detach: z
        .boolean()
        .default(false)
        .describe(
          'Return `exec_id` at once, for `exec_status`, `exec_output` and `exec_kill`. The command continues across restarts of the server, and ends with the container. Default: false.',
        ),
    }),
    output: z.object({
      exec_id: z.string().optional().describe('Only with `detach`, and then the only field.'),
      exit_code: z.number().optional(),
      stdout: z.string().optional(),
      stderr: z.string().optional(),
      truncated: z
        .boolean()
        .optional()
        .describe('Whether stdout or stderr was longer than the returned part.'),
      timed_out: z.boolean().optional(),
      duration_ms: z.number().optional(),
    }),
    run: async (context, { project_id, command, user, detach, timeout_seconds, ...rest }) => {
      const { managers, signal } = context
      const request = {
        ...rest,
        command: typeof command === 'string' ? ['bash', '-lc', command] : command,
        timeout_seconds: secondsOf(timeout_seconds, detach ? detachedSeconds : attachedSeconds),
      }
      using report = reporting(context.progress)
      const hooks = { signal, progress: report.tell }
      if (detach) return await managers.execs.start(context.caller, project_id, user, request, hooks)
      const { exec_output_bytes: output_bytes } = managers
      return await managers.exec(project_id, user, { ...request, output_bytes }, hooks)
    },
  }),
  exec_status: action({
    about: 'Get the status, exit code and times of a detached command; the container need not be running.',
    brief: 'Get status of a detached command.',
    needs: 'project:read',
    example: { exec_id: ids.exec_id },
    input: z.object({ exec_id: given }),
    output: shown,
    run: async ({ managers }, input) => await managers.execs.status(input.exec_id),
  }),
  exec_output: action({
    about:
      'Read the output of a detached command, page by page, while it runs or afterwards. Output is stored in the container, whose processes can change it, up to `execs.output_mb` of the config per stream.',
    brief: 'Read its output by pages.',
    needs: 'project:read',
    example: { exec_id: ids.exec_id },
    input: z.object({
      exec_id: given,
      cursor: z
        .string()
        .max(40)
        .optional()
        .describe('`next_cursor` of the previous page. Default: the beginning of the output.'),
      max_bytes: z
        .int()
        .min(1024)
        .max(1_048_576)
        .default(65_536)
        .describe('Maximum number of bytes per stream, 1,024 to 1,048,576. Default: 65,536.'),
      wait_seconds: z
        .number()
        .min(0)
        .max(300)
        .default(0)
        .describe('Seconds to wait for new output or the end of a running command, at most 300. Default: 0.'),
    }),
    output: z.object({
      exec_id: z.string(),
      status: shown.shape.status,
      exit_code: shown.shape.exit_code,
      stdout: z.string(),
      stderr: z.string(),
      next_cursor: z
        .string()
        .describe('Pass it as `cursor` to read on, also if there is no more output yet.'),
      more: z.boolean().describe('Whether more output is available now.'),
      truncated: z
        .boolean()
        .describe(
          'Of a command that has ended: it wrote more than is stored, or its stored output was removed.',
        ),
    }),
    run: async ({ managers, signal, progress }, { exec_id, ...page }) => {
      using _alive = reporting(progress)
      return await managers.execs.output(exec_id, { ...page, signal })
    },
  }),
  exec_kill: action({
    about:
      'Send a signal to a detached command and all its child processes, and return its status. Does nothing if the command has ended. With SIGKILL, the call returns when all processes are gone.',
    brief: 'Kill it and its children.',
    needs: 'project:write',
    idempotent: true,
    destructive: true,
    example: { exec_id: ids.exec_id },
    input: z.object({
      exec_id: given,
      signal: z.enum(killSignals).default('SIGKILL').describe('The signal. Default: SIGKILL.'),
    }),
    output: shown,
    run: async ({ managers, signal }, input) =>
      await managers.execs.kill(input.exec_id, input.signal, signal),
  }),
  exec_list: action({
    about:
      'List the detached commands of a project, oldest first, including those that ended recently (`execs` of the config sets how many).',
    brief: 'List detached commands, oldest first.',
    needs: 'project:read',
    example: { project_id: ids.project_id },
    input: z.object({
      project_id,
      status: z.enum(execStatuses).optional().describe('Only commands with this status.'),
      limit,
      cursor,
    }),
    output: z.object({ execs: z.array(shown), next_cursor }),
    run: async ({ managers }, input) => await managers.execs.list(input),
  }),
}
