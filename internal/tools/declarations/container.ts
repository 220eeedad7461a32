import { z } from 'zod'
import type { LogLine } from '../../runtime/runtime.ts'
import { action, tool } from '../tool.ts'
import { execActions } from './container-exec.ts'
import { maybeTime, project_id } from './fields.ts'

const state = z.object({
  project_id: z.string(),
  container_id: z.string(),
  status: z.string(),
  image: z.string(),
  started_at: maybeTime,
})

/** Of the lines of one answer: a droid may write lines of a megabyte. */
const mostCharacters = 2 * 1024 * 1024
const found = z
  .enum(['symlink', 'file', 'fifo', 'socket', 'device', 'mount'])
  .describe('What stands in its place.')
const tampered = z.object({ workspace_id: z.string(), found })
const started = state.extend({
  tampered: z
    .array(tampered)
    .describe(
      'Workspaces that are not directories; `recreate` repairs them. The default one is never among them.',
    ),
  repaired: z
    .array(tampered.extend({ moved_to: z.string().describe('Relative to OUBLIETTE_HOME.') }))
    .describe('What `recreate` moved aside from the place of a workspace.'),
})

export const containerTool = tool({
  name: 'container',
  about: 'The container of a project: start, stop, run a command, read its log.',
  actions: {
    start: action({
      about:
        'Make sure that it runs. Nothing happens if it does; `recreate` makes it anew from the project as it is now. Refused with `conflict` while it is paused, and while the default workspace is not a directory: `recreate` moves what stands there aside.',
      needs: 'project:write',
      idempotent: true,
      input: z.object({
        project_id,
        recreate: z
          .boolean()
          .default(false)
          .describe(
            'Remove it first. Workspaces stay; what stands in the place of one and is not a directory is moved to `lost/` in OUBLIETTE_HOME.',
          ),
      }),
      output: started,
      run: async ({ managers, progress }, input) => {
        const { id, status, image, started_at, tampered, repaired } = await managers.containers.start(
          input.project_id,
          {
            recreate: input.recreate,
            reset_failures: true,
            progress: (message) => progress({ progress: 0, message }),
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
      about: 'Stop it. Its sessions fail with that reason and can be resumed.',
      needs: 'project:write',
      idempotent: true,
      destructive: true,
      input: z.object({
        project_id,
        grace_seconds: z.int().min(0).max(300).default(10).describe('Between SIGTERM and SIGKILL.'),
      }),
      output: z.object({ project_id: z.string(), status: z.literal('stopped') }),
      run: async ({ managers }, input) => {
        await managers.containers.stop(input.project_id, input.grace_seconds)
        return { project_id: input.project_id, status: 'stopped' as const }
      },
    }),
    pause: action({
      about:
        'Freeze all its processes. Sessions stay as they are, messages to them wait, `exec` is refused with `conflict`. Nothing happens if it is paused; refused with `conflict` if it does not run.',
      needs: 'project:write',
      idempotent: true,
      input: z.object({ project_id }),
      output: z.object({ project_id: z.string(), status: z.literal('paused') }),
      run: async ({ managers }, input) => {
        await managers.pause.pause(input.project_id)
        return { project_id: input.project_id, status: 'paused' as const }
      },
    }),
    unpause: action({
      about: 'Let its processes go on, and send what waited. Nothing happens if it is not paused.',
      needs: 'project:write',
      idempotent: true,
      input: z.object({ project_id }),
      output: z.object({ project_id: z.string(), paused: z.literal(false) }),
      run: async ({ managers }, input) => {
        await managers.pause.unpause(input.project_id)
        return { project_id: input.project_id, paused: false as const }
      },
    }),
    ...execActions,
    logs: action({
      about: 'What its main process wrote, newest last.',
      needs: 'project:read',
      input: z.object({
        project_id,
        tail: z
          .int()
          .min(0)
          .max(10_000)
          .default(100)
          .describe('How many of the last lines, up to 2 MiB of them.'),
        since: z
          .union([
            z.iso.datetime({ offset: true }),
            z.string().regex(/^\d{1,6}[smhd]$/, 'is neither a time nor like 10m'),
          ])
          .optional()
          .describe('A time, or how long ago: 90s, 10m, 2h, 1d.'),
        follow: z.boolean().default(false).describe('Send further lines as progress, for `follow_seconds`.'),
        follow_seconds: z.number().min(1).max(3600).default(30).describe('How long to follow.'),
      }),
      output: z.object({
        lines: z.array(z.object({ stream: z.enum(['stdout', 'stderr']), at: z.string(), text: z.string() })),
      }),
      run: async ({ managers, signal, progress }, input) => {
        await managers.projects.require(input.project_id)
        const until = input.follow
          ? AbortSignal.any([signal, AbortSignal.timeout(input.follow_seconds * 1000)])
          : signal
        const lines: LogLine[] = []
        let characters = 0
        for await (const line of managers.runtime.logs(input.project_id, {
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
