// What the route of terminals asks of the door. Not listed and not callable by name.
import { z } from 'zod'
import { patterns } from '../../ids.ts'
import { internal } from '../tool.ts'

const side = z.int().min(1).max(1000)
export const terminalSize = z.strictObject({ rows: side, cols: side })

export const openTerminal = internal({
  tool: 'container',
  action: () => 'terminal',
  needs: 'project:write',
  input: z.object({
    project_id: z.string().regex(patterns.project, 'the path holds no project id (a UUID)'),
    workspace_id: z.string().regex(patterns.workspace, 'is not the id of a workspace').optional(),
    command: z.array(z.string().max(32_768)).min(1).max(256).optional(),
    term: z
      .string()
      .regex(/^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$/, 'is not a terminal type')
      .default('xterm-256color'),
    rows: side.default(24),
    cols: side.default(80),
  }),
  run: async ({ managers, caller, signal, progress }, request) => {
    const terminal = await managers.terminals.open(caller, request, {
      signal,
      progress: (message) => progress({ progress: 0, message }),
    })
    // The caller left meanwhile: the result is dropped.
    if (signal.aborted) terminal.close()
    signal.throwIfAborted()
    return terminal
  },
})
