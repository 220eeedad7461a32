import { z } from 'zod'
import { stepText } from '../../manager/container/starts.ts'
import type { LogLine } from '../../runtime/runtime.ts'
import { reporting } from '../reporting.ts'
import { action, tool } from '../tool.ts'
import { execActions } from './container-exec.ts'
import { exampleIds as ids, maybeTime, pagingBriefs, project_id } from './fields.ts'

const state = z.object({
  project_id: z.string(),
  container_id: z.string(),
  status: z.string(),
  image: z.string(),
  started_at: maybeTime,
})

/** Of the lines of one result: a droid may write lines of a megabyte. */
const mostCharacters = 2 * 1024 * 1024
const found = z
  .enum(['symlink', 'file', 'fifo', 'socket', 'device', 'mount'])
  .describe('What is at the path of the workspace.')
const tampered = z.object({ workspace_id: z.string(), found })
const started = state.extend({
  tampered: z
    .array(tampered)
    .describe(
      'Workspaces whose path is not a directory; `recreate` repairs them. Never contains the default workspace.',
    ),
  repaired: z
    .array(tampered.extend({ moved_to: z.string().describe('Relative to OUBLIETTE_HOME.') }))
    .describe('What `recreate` moved away from the path of a workspace.'),
})

export const containerTool = tool({
  name: 'container',
  about: 'The container of a project: start, stop, pause, run commands, read its log.',
  brief: 'The container of a project.',
  unlisted: ['user', 'status', 'grace_seconds', 'signal', 'follow', 'follow_seconds'],
  briefs: {
    ...pagingBriefs,
    recreate: 'Replace it, with new settings; files stay',
    command: 'Text runs in bash -lc, a list without a shell',
    working_dir: 'Absolute; default: the default workspace',
    env: '',
    stdin: '',
    timeout_seconds: 'Default 60 (≤86400), with detach 3600',
    detach: 'Return exec_id at once',
    exec_id: '',
    max_bytes: 'Per stream',
    wait_seconds: 'For output or the end',
    tail: 'Latest lines',
    since: 'ISO time, or age like 10m',
  },
  actions: {
    start: action({
      about:
        'Start the container of a project if it is not running, and return its state. With `recreate`, replace it with a new one that has the current settings of the project. Fails with `conflict` while the container is paused, or if the path of the default workspace is not a directory; `recreate` repairs that.',
      brief: 'Start it if needed; conflict while paused.',
      needs: 'project:write',
      idempotent: true,
      example: { project_id: ids.project_id },
      input: z.object({
        project_id,
        recreate: z
          .boolean()
          .default(false)
          .describe(
            'Remove the container first. Workspaces are kept; anything at the path of a workspace that is not a directory is moved to `lost/` in OUBLIETTE_HOME. Default: false.',
          ),
      }),
      output: started,
      run: async ({ managers, progress }, input) => {
        using report = reporting(progress)
        const { id, status, image, started_at, tampered, repaired } = await managers.containers.start(
          input.project_id,
          {
            recreate: input.recreate,
            reset_failures: true,
            progress: (step) => report.tell(stepText(step)),
          },
        )
        return {
          project_id: input.project_id,
          container_id: id,
          status,
          image,
          started_at,
          tampered,
          repaired,
        }
      },
    }),
    stop: action({
      about:
        'Stop the container of a project. Its sessions fail with that reason and can be resumed by a message.',
      brief: 'Stop it. Sessions fail; a message resumes them.',
      needs: 'project:write',
      idempotent: true,
      destructive: true,
      example: { project_id: ids.project_id },
      input: z.object({
        project_id,
        grace_seconds: z
          .int()
          .min(0)
          .max(300)
          .default(10)
          .describe('Seconds between SIGTERM and SIGKILL, at most 300. Default: 10.'),
      }),
      output: z.object({ project_id: z.string(), status: z.literal('stopped') }),
      run: async ({ managers, progress }, input) => {
        using _alive = reporting(progress)
        await managers.containers.stop(input.project_id, input.grace_seconds)
        return { project_id: input.project_id, status: 'stopped' as const }
      },
    }),
    pause: action({
      about:
        'Freeze all processes of the container. Sessions keep their status, messages to them wait, and `exec` fails with `conflict`. Does nothing if the container is paused; fails with `conflict` if it is not running.',
      brief: 'Freeze its processes; exec fails, messages wait.',
      needs: 'project:write',
      idempotent: true,
      example: { project_id: ids.project_id },
      input: z.object({ project_id }),
      output: z.object({ project_id: z.string(), status: z.literal('paused') }),
      run: async ({ managers }, input) => {
        await managers.pause.pause(input.project_id)
        return { project_id: input.project_id, status: 'paused' as const }
      },
    }),
    unpause: action({
      about:
        'Resume all processes of the container and deliver waiting messages. Does nothing if the container is not paused.',
      brief: 'Resume its processes.',
      needs: 'project:write',
      idempotent: true,
      example: { project_id: ids.project_id },
      input: z.object({ project_id }),
      output: z.object({ project_id: z.string(), paused: z.literal(false) }),
      run: async ({ managers }, input) => {
        await managers.pause.unpause(input.project_id)
        return { project_id: input.project_id, paused: false as const }
      },
    }),
    ...execActions,
    logs: action({
      about:
        'Get the latest log lines of the main process of the container, oldest first; use it to find out why a container does not work.',
      brief: 'Get latest log lines.',
      needs: 'project:read',
      example: { project_id: ids.project_id, tail: 20 },
      input: z.object({
        project_id,
        tail: z
          .int()
          .min(0)
          .max(10_000)
          .default(100)
          .describe('Number of latest lines, at most 10,000 and 2 MiB. Default: 100.'),
        since: z
          .union([
            z.iso.datetime({ offset: true }),
            z.string().regex(/^\d{1,6}[smhd]$/, 'must be an ISO 8601 time or a duration like 10m'),
          ])
          .optional()
          .describe('Only lines since this ISO 8601 time, or for this long: 90s, 10m, 2h, 1d.'),
        follow: z
          .boolean()
          .default(false)
          .describe('Also send new lines as progress for `follow_seconds`. Default: false.'),
        follow_seconds: z
          .number()
          .min(1)
          .max(3600)
          .default(30)
          .describe('Seconds to follow, 1 to 3,600. Default: 30.'),
      }),
      output: z.object({
        lines: z.array(z.object({ stream: z.enum(['stdout', 'stderr']), at: z.string(), text: z.string() })),
      }),
      run: async ({ managers, signal, progress }, input) => {
        const until = input.follow
          ? AbortSignal.any([signal, AbortSignal.timeout(input.follow_seconds * 1000)])
          : signal
        const lines: LogLine[] = []
        let characters = 0
        for await (const line of managers.containers.logs(input.project_id, {
          tail: input.tail,
          since: sinceTime(input.since),
          follow: input.follow,
          signal: until,
        })) {
          lines.push(line)
          characters += line.text.length
          if (input.follow) progress({ progress: lines.length, message: line.text })
          while (lines.length > 10_000 || (characters > mostCharacters && lines.length > 1))
            characters -= lines.shift()!.text.length
        }
        return { lines }
      },
    }),
  },
})

const unitMs: Record<string, number> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }

function sinceTime(since: string | undefined): string | undefined {
  const ago = /^(\d+)([smhd])$/.exec(since ?? '')
  return ago ? new Date(Date.now() - Number(ago[1]) * unitMs[ago[2]!]!).toISOString() : since
}
