import { z } from 'zod'
import { isOneLine, longestProjectName, looksLikeId } from '../../ids.ts'
import { stepText } from '../../manager/container/starts.ts'
import { boundaries } from '../../manager/project/boundaries.ts'
import { containerStatuses } from '../../store/schema.ts'
import { reporting } from '../reporting.ts'
import { action, tool } from '../tool.ts'
import {
  cursor,
  exampleIds as ids,
  limit,
  limits,
  limitsOutput,
  maybeTime,
  next_cursor,
  pagingBriefs,
  project_id,
  scope,
  time,
  workspaceState,
} from './fields.ts'

const name = z
  .string()
  .min(1)
  .max(longestProjectName)
  .refine(isOneLine, 'must be one line without leading or trailing spaces')
  .refine((text) => !looksLikeId(text), 'looks like an id; choose another name')
  .describe(
    'Name of the project, at most 100 characters, unique regardless of case; not in the form of an id.',
  )
const relative = z
  .string()
  .min(1)
  .max(500)
  .regex(
    /^(?!\/)(?!.*(?:^|\/)\.{1,2}(?:\/|$))(?!.*\/\/)[^\p{Cc}]*[^/\p{Cc}]$/u,
    'must be a relative path without `.`, `..` or empty segments',
  )
const remoteUrl = z
  .string()
  .max(2000)
  .regex(/^(https?|ssh|git):\/\/[^\s\p{Cc}?#\\]+$/u, 'must be an http(s), ssh or git URL without query')
  .refine((url) => URL.canParse(url), 'must be an http(s), ssh or git URL')
  .refine(
    (url) => !/^https?:\/\/[^/]*@/.test(url),
    'must not contain a user name or a secret; use credential_refs',
  )

const changeable = {
  description: z
    .string()
    .max(2000)
    .optional()
    .describe('Description of the project, at most 2,000 characters.'),
  droid: z
    .string()
    .max(32)
    .nullable()
    .optional()
    .describe('Droid of sessions that name none. Default: `default_droid` of the config.'),
  model: z
    .string()
    .max(200)
    .nullable()
    .optional()
    .describe('Model of sessions that name none. Default: the default of the droid.'),
  workspace_isolation: z
    .boolean()
    .optional()
    .describe('Whether a session that names no workspace gets a new workspace. Default: false.'),
  protected_paths: z
    .array(relative)
    .max(100)
    .optional()
    .describe('Paths relative to a workspace that `workspace write_file` refuses to write.'),
  network: z
    .enum(['none', 'internal', 'open'])
    .optional()
    .describe(
      'Network of the container. `open` (default): the internet, but not the host, private or link-local addresses (unless the config allows ranges) or other projects. `internal`: only services of the server. `none`: only the socket of the server.',
    ),
  limits: limits.optional(),
  disabled_tools: z
    .array(z.string().max(200))
    .max(200)
    .optional()
    .describe(
      'Tools that droids of this project cannot use: `token`, `session.spawn`, or the whole name of a caller tool such as `app_greet`.',
    ),
  mcp_servers: z
    .array(z.string().max(200))
    .max(100)
    .optional()
    .describe('Names of the global upstream MCP servers that droids of this project can use.'),
  credential_refs: z
    .array(z.string().max(64))
    .max(50)
    .optional()
    .describe('Names of the credentials in the config that this project uses; `project options` lists them.'),
  image: z
    .string()
    .min(1)
    .max(500)
    .nullable()
    .optional()
    .describe(
      'An image in the Docker engine, used instead of a container type; null for the container type.',
    ),
  container_type: z
    .string()
    .max(64)
    .optional()
    .describe(
      'Container type, as `project options` lists them. Default: `default_container_type` of the config.',
    ),
  api_scope_grant: scope
    .nullable()
    .optional()
    .describe(
      'The widest `api_scope` that sessions of this project may have beyond the project itself: admin, admin:ro, project:<id or name> or project:<id or name>:ro, stored with the id; null for none. Only callers that hold this scope can then write to the project. Widening the grant removes the container, and fails while the project has live sessions or enabled schedules.',
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
    prepare_error: z.string().nullable().describe('Why the last attempt to prepare the workspace failed.'),
  }),
  container: z.object({
    wanted: z.enum(['running', 'stopped']),
    status: z.enum(containerStatuses),
    reason: z.string().nullable(),
    container_id: z.string().nullable(),
  }),
  disk: z
    .object({
      used_mb: z.number().nullable().describe('As last measured, in MiB; null before the first measurement.'),
      limit_mb: z.number(),
      over: z
        .boolean()
        .describe(
          'Whether usage exceeds the limit: the container is stopped, and sessions and writes are refused.',
        ),
      measured_at: maybeTime,
    })
    .describe(
      'Disk usage of the workspaces, the home of the droids and the writable layer of the container.',
    ),
  created_at: time,
  created_by: z.string(),
  updated_at: time,
})

export const projectTool = tool({
  name: 'project',
  about: 'Projects. Each project has one container, workspaces and sessions.',
  brief: 'Projects: each has a container, workspaces, sessions.',
  admin_fields: Object.keys(boundaries).filter(
    (field) => boundaries[field as keyof typeof boundaries].by !== 'project',
  ),
  briefs: {
    ...pagingBriefs,
    name: 'Unique',
    description: '',
    droid: 'null: default of the config',
    model: 'null: default of the droid',
    workspace_isolation: 'New workspace for sessions that name none; default false',
    protected_paths: 'Relative paths that write_file refuses',
    network: 'open (default): internet, no host or private addresses; internal: server only',
    limits: 'Default: config',
    disabled_tools: 'For droids, e.g. session.spawn',
    mcp_servers: 'Upstreams for droids',
    credential_refs: 'Names from options',
    image: 'Docker image instead of container_type; null: none',
    container_type: 'Default: config',
    api_scope_grant: 'Widest api_scope of sessions beyond this project; null: none',
    remote_url: 'Git URL cloned into the default workspace',
    wait: 'Return after the clone, and fail if it fails',
    init_git: 'Make new workspaces git repositories',
    idempotency_key: 'A repeated call returns the first result',
    name_contains: '',
  },
  actions: {
    create: action({
      about:
        'Create a project and return it. Its container is created when it is first needed, or at once to clone `remote_url`.',
      brief: 'Create a project; its container starts when first needed.',
      needs: 'global:write',
      example: { name: 'site', description: 'Company web site' },
      input: z.object({
        name,
        ...changeable,
        remote_url: remoteUrl
          .optional()
          .describe(
            'Git remote to clone into the default workspace. An http(s) remote is reached through the server, also with network `none`, with the git credential that `credential_refs` names.',
          ),
        wait: z
          .boolean()
          .default(false)
          .describe(
            'Whether to return only after `remote_url` is cloned. If the clone fails, the call fails, the project exists, and `container start` tries again. Default: false, the clone runs in the background and `default_workspace.state` shows its progress.',
          ),
        init_git: z
          .boolean()
          .default(true)
          .describe('Whether new workspaces are initialized as git repositories. Default: true.'),
        idempotency_key: z
          .string()
          .min(1)
          .max(200)
          .optional()
          .describe(
            'A repeated call with the same key returns the first result instead of creating another project.',
          ),
      }),
      output: project,
      run: async ({ managers, caller, progress }, { wait, ...fields }) => {
        using report = reporting(progress)
        return await managers.projectCreation(caller, fields, {
          wait,
          progress: (step) => report.tell(stepText(step)),
        })
      },
    }),
    list: action({
      about: 'List the projects that this token may see, oldest first.',
      brief: 'List visible projects, oldest first.',
      needs: 'global:read',
      example: { name_contains: 'site' },
      input: z.object({
        name_contains: z
          .string()
          .max(100)
          .optional()
          .describe('Only projects whose name contains this text.'),
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
      about: 'Get one project with its settings, container state and disk usage.',
      brief: 'Get settings, container state, disk usage.',
      needs: 'project:read',
      example: { project_id: ids.project_id },
      input: z.object({ project_id }),
      output: project,
      run: async ({ managers }, input) => await managers.projects.get(input.project_id),
    }),
    update: action({
      about:
        'Change settings of a project and return it; fields that are left out stay as they are. Changes that concern the container take effect with `container start` and `recreate`. A project token may only tighten the boundaries of its project; `config_limits` shows who may change which field.',
      brief:
        'Change given settings; container start with recreate applies them. Project tokens may tighten its boundaries (config_limits).',
      needs: 'project:write',
      idempotent: true,
      example: { project_id: ids.project_id, description: 'Company web site' },
      input: z.object({ project_id, name: name.optional(), ...changeable }),
      output: project,
      run: async ({ managers, caller }, { project_id, ...change }) =>
        await managers.projects.update(caller, project_id, change),
    }),
    delete: action({
      about:
        'Delete a project: ends its sessions and removes its container, workspaces, schedules, tokens and records. Safe to repeat.',
      brief: 'Delete with everything in it.',
      needs: 'project:write',
      destructive: true,
      idempotent: true,
      example: { project_id: ids.project_id },
      input: z.object({ project_id }),
      output: z.object({ project_id: z.string(), deleted: z.literal(true), existed: z.boolean() }),
      run: async ({ managers, progress }, input) => {
        using _alive = reporting(progress)
        return await managers.projects.remove(input.project_id)
      },
    }),
    options: action({
      about:
        'Get the values that projects and sessions can use: models, names of credentials, container types, droids, default limits, scopes.',
      brief: 'Get usable models, credentials, container types, droids, limits, scopes.',
      needs: 'global:read',
      example: {},
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
