import { z } from 'zod'
import { Fault } from '../../fault.ts'
import { action, tool } from '../tool.ts'
import {
  cursor,
  limit,
  maybeTime,
  next_cursor,
  project_id,
  time,
  workspace_id,
  workspaceState,
} from './fields.ts'

const path = z.string().max(4000).describe('Relative to the workspace, or absolute as the container sees it.')
const where = { project_id, workspace_id: workspace_id.optional() }
const type = z.enum(['file', 'directory', 'symlink', 'other'])
const mode = z.string().describe('Permission bits, octal.')

const workspace = z.object({
  workspace_id: z.string(),
  project_id: z.string(),
  is_default: z.boolean(),
  path: z.string().describe('In the container.'),
  state: workspaceState,
  prepared_at: maybeTime,
  prepare_error: z.string().nullable().describe('Why the last attempt to prepare it failed.'),
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
  about: 'Working directories inside a project, kept between sessions, and the files in them.',
  actions: {
    list: action({
      about: 'Every workspace of one project.',
      needs: 'project:read',
      input: z.object({ project_id, limit, cursor }),
      output: z.object({ workspaces: z.array(workspace), next_cursor }),
      run: async ({ managers }, { project_id, ...page }) => await managers.workspaces.list(project_id, page),
    }),
    delete: action({
      about: 'Remove a workspace and its files. Refused for the default one and while a session lives in it.',
      needs: 'project:write',
      destructive: true,
      input: z.object({ project_id, workspace_id: workspace_id.describe('The workspace.') }),
      output: z.object({ workspace_id: z.string(), deleted: z.literal(true) }),
      run: async ({ managers }, input) =>
        await managers.workspaces.remove(input.project_id, input.workspace_id),
    }),
    list_dir: action({
      about: 'The entries of a directory, by name.',
      needs: 'project:read',
      input: z.object({
        ...where,
        path: path.default('.'),
        limit: z.int().min(1).max(1000).default(200).describe('How many at most.'),
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
      about: 'A file, or a part of it; base64 if it is not UTF-8.',
      needs: 'project:read',
      input: z.object({
        ...where,
        path: path.min(1),
        offset: z.int().min(0).default(0).describe('First byte.'),
        max_bytes: z.int().min(1).max(4_194_304).default(262_144).describe('How many bytes at most.'),
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
      about: 'Write a whole file, at once or not at all.',
      needs: 'project:write',
      destructive: true,
      idempotent: true,
      input: z.object({
        ...where,
        path: path.min(1),
        content: z.string().max(3_500_000).describe('What it shall hold.'),
        encoding: z.enum(['utf8', 'base64']).default('utf8').describe('Of `content`.'),
        mode: z
          .string()
          .regex(/^0?[0-7]{3}$/, 'must be octal permission bits like 0644')
          .optional()
          .describe('Permission bits; as before, or 0644.'),
        create_parents: z.boolean().default(true).describe('Make missing directories.'),
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
      about: 'What stands at a path, if anything. A symlink is told, not followed.',
      needs: 'project:read',
      input: z.object({ ...where, path }),
      output: z.object({
        path: z.string(),
        exists: z.boolean(),
        type: type.optional(),
        size_bytes: z.number().optional(),
        mode: mode.optional(),
        modified_at: time.optional(),
        target: z.string().nullable().optional().describe('Of a symlink.'),
      }),
      run: async ({ managers }, input) =>
        await managers.workspaces.pathInfo(input.project_id, input.workspace_id, input.path),
    }),
  },
})
