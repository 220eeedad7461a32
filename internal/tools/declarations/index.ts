// The one list of tools.
import type { Tool } from '../tool.ts'
import { approvalTool } from './approval.ts'
import { containerTool } from './container.ts'
import { diagnosticsTool } from './diagnostics/diagnostics.ts'
import { usageTool } from './diagnostics/usage.ts'
import { mcpServerTool } from './mcp-server.ts'
import { projectTool } from './project.ts'
import { scheduleTool } from './schedule.ts'
import { sessionTool } from './session.ts'
import { callerToolResponse, configLimits, imageRebuild, projectChanges, projectTasks } from './standalone.ts'
import { tokenTool } from './token.ts'
import { workspaceTool } from './workspace.ts'

const all = [
  projectTool,
  containerTool,
  sessionTool,
  workspaceTool,
  mcpServerTool,
  approvalTool,
  scheduleTool,
  tokenTool,
  diagnosticsTool,
  callerToolResponse,
  configLimits,
  imageRebuild,
  projectChanges,
  projectTasks,
  usageTool,
]

export const tools: Record<string, Tool> = Object.fromEntries(all.map((tool) => [tool.name, tool]))
