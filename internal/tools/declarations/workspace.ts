import { z } from 'zod'
import { Fault } from '../../fault.ts'
import { action, tool } from '../tool.ts'
import {
  cursor,
  exampleIds as ids,
  limit,
  maybeTime,
  next_cursor,
  pagingBriefs,
  project_id,
  time,
  workspace_id,
  workspaceState,
} from './fields.ts'

const path = z.string().max(4000).describe('Path relative to the workspace, or absolute as in the container.')
const where = { project_id, workspace_id: workspace_id.optional() }
const type = z.enum(['file', 'directory', 'symlink', 'other'])
const mode = z.string().describe('Permission bits, octal.')

const workspace = z.object({
  workspace_id: z.string(),
  project_id: z.string(),
  is_default: z.boolean(),
  path: z.string().describe('Path in the container.'),
  state: workspaceState,
  prepared_at: maybeTime,
  prepare_error: z.string().nullable().describe('Why the last attempt to prepare the workspace failed.'),
  created_at: time,
  created_by: z.string(),
  last_used_at: time,
})

function bytesOf(content: string, encoding: 'utf8' | 'base64'): Buffer {
  const bytes = Buffer.from(content, encoding)
  if (encoding === 'base64' && bytes.toString('base64').replace(/=+$/, '') !== content.replace(/\s|=+$/g, ''))
    throw new Fault('invalid', 'content is not base64')
  return bytes
}

export const workspaceTool = tool({
  name: 'workspace',
  about: 'Workspaces: directories of a project that are kept between sessions, and the files in them.',
  brief: 'Directories of a project, and their files.',
  unlisted: ['create_parents'],
  briefs: {
    ...pagingBriefs,
    workspace_id: 'Default: the default workspace',
    path: 'Relative to the workspace, or absolute',
    limit: '',
    offset: '',
    max_bytes: '',
    content: '',
    encoding: '',
    mode: 'Octal; default 0644 or unchanged',
  },
  actions: {
    list: action({
      about: 'List the workspaces of a project.',
      brief: 'List workspaces.',
      needs: 'project:read',
      example: { project_id: ids.project_id },
      input: z.object({ project_id, limit, cursor }),
      output: z.object({ workspaces: z.array(workspace), next_cursor }),
      run: async ({ managers }, { project_id, ...page }) => await managers.workspaces.list(project_id, page),
    }),
    delete: action({
      about:
        'Delete a workspace and its files. Fails for the default workspace, and while a session uses it.',
      brief: 'Delete with files; not the default one, nor one in use.',
      needs: 'project:write',
      destructive: true,
      example: { project_id: ids.project_id, workspace_id: ids.workspace_id },
      input: z.object({ project_id, workspace_id: workspace_id.describe('Id of the workspace.') }),
      output: z.object({ workspace_id: z.string(), deleted: z.literal(true) }),
      run: async ({ managers }, input) =>
        await managers.workspaces.remove(input.project_id, input.workspace_id),
    }),
    list_dir: action({
      about: 'List the entries of a directory, sorted by name, with type, size and modification time.',
      brief: 'List entries by name.',
      needs: 'project:read',
      example: { project_id: ids.project_id },
      input: z.object({
        ...where,
        path: path.default('.'),
        limit: z
          .int()
          .min(1)
          .max(1000)
          .default(200)
          .describe('Maximum number of entries, 1 to 1,000. Default: 200.'),
        cursor,
      }),
      output: z.object({
        path: z.string(),
        entries: z.array(
          z.object({ name: z.string(), type, size_bytes: z.number(), mode, modified_at: time }),
        ),
        next_cursor,
      }),
      run: async ({ managers }, { project_id, workspace_id, path, ...page }) =>
        await managers.workspaces.listDir(project_id, workspace_id, path, page),
    }),
    read_file: action({
      about: 'Read a file or a range of it; the content is base64 if it is not UTF-8.',
      brief: 'Read (a range of) a file; base64 if not UTF-8.',
      needs: 'project:read',
      example: { project_id: ids.project_id, path: 'README.md' },
      input: z.object({
        ...where,
        path: path.min(1),
        offset: z.int().min(0).default(0).describe('First byte to read. Default: 0.'),
        max_bytes: z
          .int()
          .min(1)
          .max(4_194_304)
          .default(262_144)
          .describe('Maximum number of bytes, at most 4,194,304. Default: 262,144.'),
      }),
      output: z.object({
        path: z.string(),
        content: z.string(),
        encoding: z.enum(['utf8', 'base64']),
        size_bytes: z.number(),
        offset: z.number(),
        truncated: z.boolean(),
      }),
      run: async ({ managers }, { project_id, workspace_id, path, ...range }) =>
        await managers.workspaces.readFile(project_id, workspace_id, path, range),
    }),
    write_file: action({
      about: 'Create or replace a file atomically; returns its size and whether it is new.',
      brief: 'Create or replace a file.',
      needs: 'project:write',
      destructive: true,
      idempotent: true,
      example: { project_id: ids.project_id, path: 'README.md', content: 'hello' },
      input: z.object({
        ...where,
        path: path.min(1),
        content: z
          .string()
          .max(3_500_000)
          .describe('Whole content of the file, at most 3,500,000 characters.'),
        encoding: z
          .enum(['utf8', 'base64'])
          .default('utf8')
          .describe('Encoding of `content`. Default: utf8.'),
        mode: z
          .string()
          .regex(/^0?[0-7]{3}$/, 'must be octal permission bits like 0644')
          .optional()
          .describe('Permission bits, octal. Default: those of the existing file, otherwise 0644.'),
        create_parents: z
          .boolean()
          .default(true)
          .describe('Create missing parent directories. Default: true.'),
      }),
      output: z.object({ path: z.string(), size_bytes: z.number(), created: z.boolean() }),
      run: async ({ managers }, input) =>
        await managers.workspaces.writeFile(
          input.project_id,
          input.workspace_id,
          input.path,
          bytesOf(input.content, input.encoding),
          input,
        ),
    }),
    path_info: action({
      about: 'Get whether a path exists, and its type, size and mode; symbolic links are not followed.',
      brief: 'Get type, size, mode.',
      needs: 'project:read',
      example: { project_id: ids.project_id, path: 'README.md' },
      input: z.object({ ...where, path }),
      output: z.object({
        path: z.string(),
        exists: z.boolean(),
        type: type.optional(),
        size_bytes: z.number().optional(),
        mode: mode.optional(),
        modified_at: time.optional(),
        target: z.string().nullable().optional().describe('Target of a symbolic link.'),
      }),
      run: async ({ managers }, input) =>
        await managers.workspaces.pathInfo(input.project_id, input.workspace_id, input.path),
    }),
  },
})
