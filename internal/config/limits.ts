// Limits of one project. The `limits` of a project override the defaults of the config one by one.
import { z } from 'zod'

export const limitsSchema = z.strictObject({
  max_recursion_depth: z
    .int()
    .min(0)
    .max(20)
    .default(3)
    .describe('Maximum depth of a session tree: a session at this depth cannot spawn sessions.'),
  max_agents_per_session: z
    .int()
    .min(1)
    .max(1000)
    .default(20)
    .describe('Maximum number of sessions in one session tree, including the root.'),
  max_active_sessions: z
    .int()
    .min(1)
    .max(1000)
    .default(20)
    .describe(
      'Maximum number of sessions of the project that have not ended, including queued and hibernated sessions. `memory_mb` determines how many droids run at the same time.',
    ),
  max_spawns_per_minute: z
    .int()
    .min(1)
    .max(10_000)
    .default(60)
    .describe('Maximum number of sessions that the project starts per minute.'),
  max_cost_usd: z
    .number()
    .min(0)
    .max(1_000_000)
    .default(100)
    .describe('Maximum total model cost of the project, in US dollars.'),
  memory_mb: z
    .int()
    .min(64)
    .max(1_048_576)
    .default(2048)
    .describe(
      'Memory of the container, in MiB, shared by all sessions with a running droid. A session whose droid does not fit (`droids.*.memory_mb`, plus 48 MiB for the supervisor) stays `queued` until another session ends or is hibernated. For example, 2,048 MiB hold four active OpenCode agents, regardless of `max_active_sessions`.',
    ),
  cpus: z.number().min(0.1).max(256).default(2).describe('CPU cores of the container.'),
  pids: z
    .int()
    .min(16)
    .max(100_000)
    .default(512)
    .describe('Maximum number of processes and threads in the container.'),
  session_mb: z
    .int()
    .min(1)
    .max(1_048_576)
    .default(256)
    .describe('Maximum size of the stored events of one session, in MiB. A session that exceeds it fails.'),
  disk_mb: z
    .int()
    .min(16)
    .max(1_073_741_824)
    .default(10_240)
    .describe(
      'Maximum disk usage of the files of the project, in MiB, measured periodically. Files count as at least 8 KiB on average. No single file can grow beyond this size.',
    ),
})
export type Limits = z.infer<typeof limitsSchema>
