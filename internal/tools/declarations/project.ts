import { z } from 'zod'
import { containerStatuses } from '../../store/schema.ts'
import { action, tool } from '../tool.ts'
import {
  cursor,
  limit,
  limits,
  limitsOutput,
  maybeTime,
  next_cursor,
  project_id,
  time,
  workspaceState,
} from './fields.ts'

const name = z
  .string()
  .min(1)
  .max(100)
  .regex(/^[^\p{Cc}\p{Z}](?:[^\p{Cc}]*[^\p{Cc}\p{Z}])?$/u, 'must be one line without blanks at its ends')
  .describe('Unique, whatever the case of its letters.')
const relative = z
  .string()
  .min(1)
  .max(500)
  .regex(
    /^(?!\/)(?!.*(?:^|\/)\.{1,2}(?:\/|$))(?!.*\/\/)[^\p{Cc}]*[^/\p{Cc}]$/u,
    'must be a plain relative path',
  )
const remoteUrl = z
  .string()
  .max(2000)
  .regex(/^(https?|ssh|git):\/\/[^\s\p{Cc}?#\\]+$/u, 'must be an http(s), ssh or git URL without query')
  .refine((url) => URL.canParse(url), 'must be an http(s), ssh or git URL')
  .refine(
    (url) => !/^https?:\/\/[^/]*@/.test(url),
    'must not carry a user name or a secret: use credential_refs',
  )

const changeable = {
  description: z.string().max(2000).optional().describe('What it is for.'),
  droid: z
    .string()
    .max(32)
    .nullable()
    .optional()
    .describe("The droid of its sessions; the config's default if left out."),
  model: z.string().max(200).nullable().optional().describe('The model of its sessions.'),
  workspace_isolation: z
    .boolean()
    .optional()
    .describe('Give each session that names no workspace a new one.'),
  protected_paths: z
    .array(relative)
    .max(100)
    .optional()
    .describe('Paths in workspaces that `workspace write_file` refuses to touch.'),
  network: z
    .enum(['none', 'internal', 'open'])
    .optional()
    .describe(
      '`open` (the default) is the internet, but not the host, private or link-local addresses (unless the config allows ranges) or other projects; `internal` only what the server offers; `none` the socket alone.',
    ),
  limits: limits.optional(),
  disabled_tools: z
    .array(z.string().max(200))
    .max(200)
    .optional()
    .describe('Tools that its droids do not get.'),
  mcp_servers: z
    .array(z.string().max(200))
    .max(100)
    .optional()
    .describe('Upstream MCP servers that its droids get, by name.'),
  credential_refs: z
    .array(z.string().max(64))
    .max(50)
    .optional()
    .describe('Credentials of the config that it uses, by name.'),
  image: z
    .string()
    .min(1)
    .max(500)
    .nullable()
    .optional()
    .describe('Any image of the engine, instead of a container type.'),
  container_type: z.string().max(64).optional().describe('A container type, as `options` lists them.'),
  api_scope_grant: z
    .string()
    .max(100)
    .nullable()
    .optional()
    .describe(
      'The widest `api_scope` that its sessions may have beyond the project itself: admin, admin:ro, project:<uuid> or project:<uuid>:ro; null for none. Only callers that hold this scope can then write to the project. A wider grant removes the container, and is refused while sessions live in the project or schedules of it are enabled.',
    ),
}

const project = z.object({
  project_id: z.string(),
  name: z.string(),
  description: z.string(),
  container_type: z.string(),
  image: z.string().nullable(),
  droid: z.string(),
  model: z.string().nullable(),
  remote_url: z.string().nullable(),
  init_git: z.boolean(),
  workspace_isolation: z.boolean(),
  protected_paths: z.array(z.string()),
  network: z.enum(['none', 'internal', 'open']),
  limits: limitsOutput,
  disabled_tools: z.array(z.string()),
  mcp_servers: z.array(z.string()),
  credential_refs: z.array(z.string()),
  api_scope_grant: z.string().nullable(),
  default_workspace_id: z.string(),
  default_workspace: z.object({
    state: workspaceState,
    prepare_error: z.string().nullable().describe('Why the last attempt to prepare it failed.'),
  }),
  container: z.object({
    wanted: z.enum(['running', 'stopped']),
    status: z.enum(containerStatuses),
    reason: z.string().nullable(),
    container_id: z.string().nullable(),
  }),
  disk: z
    .object({
      used_mb: z.number().nullable().describe('As last measured, in MiB; null before the first measure.'),
      limit_mb: z.number(),
      over: z
        .boolean()
        .describe('More than the limit is used: sessions and writes are refused, the container was stopped.'),
      measured_at: maybeTime,
    })
    .describe('What its workspaces, the home of its droids and the layer of its container take.'),
  created_at: time,
  created_by: z.string(),
  updated_at: time,
})

export const projectTool = tool({
  name: 'project',
  about: 'Projects: each has one container, its workspaces and its sessions.',
  actions: {
    create: action({
      about: 'Make a project. Its container is made when first needed, or at once to clone `remote_url`.',
      needs: 'global:write',
      input: z.object({
        name,
        ...changeable,
        remote_url: remoteUrl
          .optional()
          .describe(
            'A git remote, cloned into the default workspace by the container itself. An http(s) remote is reached through the server, with the git credential that credential_refs name, also with network none.',
          ),
        wait: z
          .boolean()
          .default(false)
          .describe(
            'Answer when remote_url is cloned, with an error if that fails; the project stays then, and container start tries again. Without it the clone goes on in the background and default_workspace.state tells how it is.',
          ),
        init_git: z.boolean().default(true).describe('Make workspaces git repositories.'),
        idempotency_key: z
          .string()
          .min(1)
          .max(200)
          .optional()
          .describe('A repeat with the same key returns the first result.'),
      }),
      output: project,
      run: async ({ managers, caller, progress }, { wait, ...fields }) =>
        await managers.projectCreation(caller, fields, {
          wait,
          progress: (message) => progress({ progress: 0, message }),
        }),
    }),
    list: action({
      about: 'The projects that this token may see, oldest first.',
      needs: 'global:read',
      input: z.object({
        name_contains: z.string().max(100).optional().describe('Part of the name.'),
        limit,
        cursor,
      }),
      output: z.object({ projects: z.array(project), next_cursor }),
      run: async ({ managers, caller: { scope } }, input) =>
        await managers.projects.list({
          ...input,
          only_id: scope.kind === 'project' ? scope.project_id : undefined,
        }),
    }),
    get: action({
      about: 'One project.',
      needs: 'project:read',
      input: z.object({ project_id }),
      output: project,
      run: async ({ managers }, input) => await managers.projects.get(input.project_id),
    }),
    update: action({
      about:
        'Change a project. What concerns its container takes effect with `container start` and `recreate`. A project token may only tighten what bounds the project; `config_limits` shows who may change what.',
      needs: 'project:write',
      idempotent: true,
      input: z.object({ project_id, name: name.optional(), ...changeable }),
      output: project,
      run: async ({ managers, caller }, { project_id, ...change }) =>
        await managers.projects.update(caller, project_id, change),
    }),
    delete: action({
      about:
        'End its sessions and remove its container, workspaces, schedules, tokens and records. Safe to repeat.',
      needs: 'project:write',
      destructive: true,
      idempotent: true,
      input: z.object({ project_id }),
      output: z.object({ project_id: z.string(), deleted: z.literal(true), existed: z.boolean() }),
      run: async ({ managers }, input) => await managers.projects.remove(input.project_id),
    }),
    options: action({
      about:
        'What a project can be made of: models, credentials by name, container types, droids, limits, scopes.',
      needs: 'global:read',
      input: z.object({}),
      output: z.object({
        models: z.array(z.string()),
        credentials: z.array(z.object({ name: z.string(), provider: z.string() })),
        container_types: z.array(
          z.object({
            type: z.string(),
            built: z.boolean(),
            size_bytes: z.number().nullable(),
            is_default: z.boolean(),
          }),
        ),
        droids: z.array(
          z.object({
            name: z.string(),
            kind: z.string(),
            is_default: z.boolean(),
            container_type: z.string().optional(),
            needs: z
              .object({ providers: z.array(z.string()), ready: z.boolean(), missing: z.string().optional() })
              .optional(),
          }),
        ),
        networks: z.array(z.string()),
        limits: limitsOutput,
        scopes: z.array(z.string()),
      }),
      run: async ({ managers }) => await managers.options(),
    }),
  },
})
