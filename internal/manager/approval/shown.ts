// An approval as tools return it. The answer to an elicitation is not returned: it may hold what a person typed in confidence.
import type { ApprovalRow } from '../../store/rows/approvals.ts'
import { displayedObject } from './displayed.ts'
import { shownTool } from './question.ts'

export const shown = (row: ApprovalRow, project_name: string | null) => ({
  approval_id: row.id,
  kind: row.kind,
  session_id: row.session_id,
  project_id: row.project_id,
  project_name,
  request_id: row.request_id,
  tool_call: row.tool_call,
  options: row.options,
  server: row.server,
  tool: shownTool(row.tool),
  arguments: row.arguments,
  detail: displayedObject(row.detail, 64 * 1024),
  status: row.status,
  scope: row.scope,
  reason: row.reason,
  decided_by: row.decided_by,
  created_at: row.created_at,
  expires_at: row.expires_at,
  decided_at: row.decided_at,
  revoked_at: row.revoked_at,
})
