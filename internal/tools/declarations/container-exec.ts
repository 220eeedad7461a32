// Commands in a container: those that the call waits for, and detached ones.
import { z } from 'zod'
import { Fault } from '../../fault.ts'
import { patterns } from '../../ids.ts'
import { killSignals } from '../../protocol/messages.ts'
import { execStatuses } from '../../store/schema.ts'
import { action, type RunContext } from '../tool.ts'
import { cursor, limit, maybeTime, next_cursor, project_id, time } from './fields.ts'

const alive_ms = 10_000
const attachedSeconds = { usual: 60, most: 86_400 }
const detachedSeconds = { usual: 3600, most: 7 * 86_400 }

const exec_id = z.string().regex(patterns.exec, 'is not the id of a command (exec_…)')
const given = exec_id.describe('The detached command, as `exec` with `detach` returned it.')

const shown = z.object({
  exec_id: z.string(),
  project_id: z.string(),
  status: z
    .enum(execStatuses)
    .describe(
      '`running`; `exited` by itself; `timed_out` and killed; `killed` by exec_kill; `lost` when the container ended before it, or it was never started: `reason` says so.',
    ),
  exit_code: z.number().nullable().describe('128 plus the number of the signal for one that a signal ended.'),
  reason: z.string().nullable(),
  command: z.string().describe('Cut after 4,000 characters.'),
  working_dir: z.string().nullable(),
  created_by: z.string(),
  started_at: time,
  deadline_at: time.describe('When it is killed.'),
  ended_at: maybeTime,
  stdout_bytes: z
    .number()
    .nullable()
    .describe('Written in all, also what is not stored; null while it runs.'),
  stderr_bytes: z.number().nullable(),
})

/** Progress that only ever grows, in seconds, and a sign of life in between: clients give up on calls that are silent. */
function reporting(progress: RunContext['progress']) {
  const began = performance.now()
  let last = 0
  const tell = (message?: string) => {
    last = Math.max(last + 0.001, Math.round(performance.now() - began) / 1000)
    progress({ progress: last, ...(message === undefined ? {} : { message }) })
  }
  const timer = setInterval(() => tell(), alive_ms)
  return { tell, [Symbol.dispose]: () => clearInterval(timer) }
}

function secondsOf(given: number | undefined, { usual, most }: { usual: number; most: number }): number {
  if (given !== undefined && given > most)
    throw new Fault('invalid', `timeout_seconds: at most ${most} here`, {
      hint: most === attachedSeconds.most ? 'with detach, a command may run for 7 days' : '',
    })
  return given ?? usual
}

export const execActions = {
  exec: action({
    about:
      'Run a command in it and wait for its end, or with `detach` answer at once with an exec_id. A container that is stopped is started. A time-out kills everything that the command started. While the call waits, output is sent as progress; a command whose call is cancelled or cut off is killed.',
    needs: 'project:write',
    destructive: true,
    input: z.object({
      project_id,
      command: z
        .union([z.string().min(1).max(200_000), z.array(z.string().max(100_000)).min(1).max(1000)])
        .describe('A string is run by `bash -lc`; an array is run as it is.'),
      working_dir: z
        .string()
        .min(1)
        .max(4000)
        .regex(/^\//, 'must be an absolute path')
        .optional()
        .describe('The default workspace if left out.'),
      env: z
        .record(
          z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'is not a name of a variable'),
          z.string().max(100_000),
        )
        .optional()
        .describe('Additional environment.'),
      stdin: z
        .string()
        .max(2_000_000)
        .optional()
        .describe('Written to its standard input, which is then closed.'),
      timeout_seconds: z
        .number()
        .min(0.1)
        .max(detachedSeconds.most)
        .optional()
        .describe(
          'After this it is killed. 60 if left out, at most 86,400; with `detach` 3,600 and at most 604,800.',
        ),
      user: z
        .string()
        .max(100)
        .regex(/^[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?$/, 'is not a user')
        .optional()
        .describe(
          "Only the container's own user is accepted, as its uid, `uid:gid` or its name in the image; every command runs as that user without further groups.",
        ),
      detach: z
        .boolean()
        .default(false)
        .describe(
          'Do not wait: return `exec_id`, for exec_status, exec_output and exec_kill. The command goes on when the server is restarted, and ends with the container.',
        ),
    }),
    output: z.object({
      exec_id: z.string().optional().describe('With `detach`, and then nothing else.'),
      exit_code: z.number().optional(),
      stdout: z.string().optional(),
      stderr: z.string().optional(),
      truncated: z
        .boolean()
        .optional()
        .describe('Whether stdout or stderr was longer than what is returned.'),
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
    about: 'How a detached command is doing, or how it ended. The container need not run.',
    needs: 'project:read',
    input: z.object({ exec_id: given }),
    output: shown,
    run: async ({ managers }, input) => await managers.execs.status(input.exec_id),
  }),
  exec_output: action({
    about:
      'What a detached command has written so far, page by page. It is stored in the container, where its processes can change it, up to `execs.output_mb` of the config for each stream.',
    needs: 'project:read',
    input: z.object({
      exec_id: given,
      cursor: z
        .string()
        .max(40)
        .optional()
        .describe('`next_cursor` of the page before; from the beginning if left out.'),
      max_bytes: z.int().min(1024).max(1_048_576).default(65_536).describe('Of each stream at most.'),
      wait_seconds: z
        .number()
        .min(0)
        .max(300)
        .default(0)
        .describe('If there is nothing new and it still runs, wait this long for output or its end.'),
    }),
    output: z.object({
      exec_id: z.string(),
      status: shown.shape.status,
      exit_code: shown.shape.exit_code,
      stdout: z.string(),
      stderr: z.string(),
      next_cursor: z.string().describe('Where the next page starts, also when there is nothing more yet.'),
      more: z.boolean().describe('Whether another page can be read at once.'),
      truncated: z
        .boolean()
        .describe('Of a command that is over: it wrote more than what is stored, or that was removed.'),
    }),
    run: async ({ managers, signal, progress }, { exec_id, ...page }) => {
      using _alive = reporting(progress)
      return await managers.execs.output(exec_id, { ...page, signal })
    },
  }),
  exec_kill: action({
    about:
      'Send a signal to a detached command and everything it started. Nothing happens if it is over. SIGKILL answers when all of it is gone.',
    needs: 'project:write',
    idempotent: true,
    destructive: true,
    input: z.object({
      exec_id: given,
      signal: z.enum(killSignals).default('SIGKILL').describe('Which signal.'),
    }),
    output: shown,
    run: async ({ managers, signal }, input) =>
      await managers.execs.kill(input.exec_id, input.signal, signal),
  }),
  exec_list: action({
    about: 'The detached commands of a project, oldest first; those that are over are kept for a while.',
    needs: 'project:read',
    input: z.object({
      project_id,
      status: z.enum(execStatuses).optional().describe('Only those with this status.'),
      limit,
      cursor,
    }),
    output: z.object({ execs: z.array(shown), next_cursor }),
    run: async ({ managers }, input) => await managers.execs.list(input),
  }),
}
