// What the routes of archives ask of the door. Not listed and not callable by name.
import { z } from 'zod'
import { Fault } from '../../fault.ts'
import { patterns } from '../../ids.ts'
import { internal } from '../tool.ts'

const where = z.object({
  project_id: z.string().regex(patterns.project, 'is not a project id (a UUID)'),
  workspace_id: z.string().regex(patterns.workspace, 'is not a workspace id'),
  path: z.string().max(4000).default('.'),
})

export const readArchive = internal({
  tool: 'workspace',
  action: () => 'read_archive',
  needs: 'project:read',
  input: where,
  run: async ({ managers, signal }, input) => {
    const archive = await managers.archives.read(input)
    // The caller left meanwhile: the result is dropped.
    if (signal.aborted) archive.close()
    signal.throwIfAborted()
    return archive
  },
})

export const writeArchive = internal({
  tool: 'workspace',
  action: () => 'write_archive',
  needs: 'project:write',
  input: where,
  run: async ({ managers, body, signal }, input) => {
    if (!body) throw new Fault('invalid', 'the archive is missing')
    return await managers.archives.write(input, body, signal)
  },
})
