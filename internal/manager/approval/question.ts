// A question as the row that is stored, and as the event that tells of it. What the row displays is bounded and safe to show;
// the hash is of the whole arguments.
import { Fault } from '../../fault.ts'
import { newApprovalId } from '../../ids.ts'
import type { ApprovalRow, NewApproval, QuestionIdentity } from '../../store/rows/approvals.ts'
import type { NewEvent } from '../../store/rows/session/events.ts'
import type { ConsentQuestion, DefinitionQuestion, ElicitationQuestion, Question } from './approval.ts'
import { displayed, displayedObject, safeText } from './displayed.ts'

const detailBytes = 64 * 1024
const longestUrl = 8_192

/** Refuses what cannot be stored or shown, so that the asker is told at once. */
function checkStored(what: string, value: unknown): void {
  const text = JSON.stringify(value)
  if (text.length > detailBytes) throw new Fault('invalid', `${what} is larger than ${detailBytes} bytes`)
  if (/\\u(0000|d[89a-f])/.test(text))
    throw new Fault('invalid', `${what} contains characters that cannot be stored`)
}

/** A person opens it: only the web, and no credentials that could be mistaken for the host. */
function checkedUrl(given: unknown): { url: string; host: string } {
  if (typeof given !== 'string' || given.length > longestUrl || !URL.canParse(given))
    throw new Fault('invalid', `the URL to open is missing, invalid, or longer than ${longestUrl} characters`)
  const url = new URL(given)
  if (!['https:', 'http:'].includes(url.protocol) || url.username !== '' || url.password !== '')
    throw new Fault('invalid', 'the URL to open must be an http or https URL without credentials')
  return { url: url.href, host: url.host }
}

/** The schema of a form; undefined if the request has none. */
export function requestedSchema({
  requestedSchema: given,
}: Record<string, unknown>): Record<string, unknown> | undefined {
  if (given === undefined) return undefined
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    throw new Fault('invalid', 'the requested schema is not an object')
  return given as Record<string, unknown>
}

const isUrlMode = (request: Record<string, unknown>): boolean =>
  request.mode === 'url' || typeof request.url === 'string'

function elicitationDetail({ request }: ElicitationQuestion): Record<string, unknown> {
  checkStored('the request of the server', request)
  const { requestedSchema: _, url, message, ...rest } = request
  return {
    ...displayedObject(rest),
    message: displayed(message ?? ''),
    ...(isUrlMode(request)
      ? { mode: 'url', ...checkedUrl(url) }
      : { mode: 'form', requested_schema: requestedSchema(request) ?? { type: 'object' } }),
  }
}

function definitionDetail({ change }: DefinitionQuestion): Record<string, unknown> {
  const { status, pin, ...rest } = change
  return { status, pin, ...displayedObject(rest, detailBytes / 2) }
}

const consentDetail = ({ url }: ConsentQuestion): Record<string, unknown> => checkedUrl(url)

function detailOf(question: Question): Record<string, unknown> {
  if (question.kind === 'tool') return { because: question.because }
  if (question.kind === 'definition') return definitionDetail(question)
  if (question.kind === 'elicitation') return elicitationDetail(question)
  return consentDetail(question)
}

export const identityOf = (question: Question): QuestionIdentity => ({
  kind: question.kind,
  session_id: question.session_id,
  call_id: question.call_id ?? null,
  ask_key: question.kind === 'tool' ? null : (question.key ?? null),
})

/** As people see it. */
export const shownTool = (tool: string | null): string | null => (tool === null ? null : safeText(tool))
export const titleOf = ({ server, tool }: Pick<ApprovalRow, 'server' | 'tool'>): string =>
  [server, shownTool(tool)].filter((part) => part !== null).join(': ')

export function rowOf(
  question: Question,
  arguments_hash: string | null,
  default_seconds: number,
): NewApproval {
  const id = newApprovalId()
  const now = Date.now()
  const seconds = Math.min(question.expires_in_seconds ?? default_seconds, default_seconds)
  const { tool, server_id } = question
  checkStored('the name of the tool', [tool, server_id])
  const server = safeText(question.server)
  const isTool = question.kind === 'tool'
  return {
    id,
    ...identityOf(question),
    project_id: question.project_id,
    request_id: id,
    tool_call: JSON.stringify({ title: titleOf({ server, tool }), kind: question.kind }),
    options: '[]',
    server,
    server_id,
    tool,
    arguments: isTool ? JSON.stringify(displayedObject(question.arguments)) : null,
    arguments_hash,
    detail: JSON.stringify(detailOf(question)),
    status: 'open',
    reason: null,
    decided_by: null,
    allowed_at: isTool ? question.allowed_at : null,
    set_by_admin: isTool && question.set_by_admin,
    created_at: new Date(now).toISOString(),
    expires_at: new Date(now + seconds * 1000).toISOString(),
    decided_at: null,
  }
}

export const requestEvent = (row: ApprovalRow): NewEvent => ({
  type: 'tool_approval_request',
  at: row.created_at,
  data: {
    approval_id: row.id,
    request_id: row.request_id,
    kind: row.kind,
    server: row.server,
    tool: shownTool(row.tool),
    ...(row.arguments ? { arguments: row.arguments } : {}),
    detail: row.detail,
    expires_at: row.expires_at,
  },
})

/** A permission request keeps the fields that it always had. */
export const decisionEvent = (row: ApprovalRow): NewEvent => ({
  type: 'tool_approval_decision',
  at: new Date().toISOString(),
  data: {
    approval_id: row.id,
    request_id: row.request_id,
    decision: row.status === 'allowed' ? 'allow' : 'deny',
    decided_by: row.decided_by,
    ...(row.reason ? { reason: row.reason } : {}),
    ...(row.kind === 'permission'
      ? {}
      : {
          kind: row.kind,
          server: row.server,
          tool: shownTool(row.tool),
          status: row.status,
          scope: row.scope,
        }),
  },
})
