// Every id, its shape and how a new one is made. Branded, so that one kind cannot be passed for another.
import { randomFillSync, randomUUID } from 'node:crypto'

type Brand<Name extends string> = string & { readonly __id: Name }
export type ProjectId = Brand<'project'>
export type WorkspaceId = Brand<'workspace'>
export type SessionId = Brand<'session'>
export type TokenId = Brand<'token'>
export type ApprovalId = Brand<'approval'>
export type ScheduleId = Brand<'schedule'>
export type ExecId = Brand<'exec'>

const uuid = '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}'
const prefixed = (prefix: string) => new RegExp(`^${prefix}_[0-9a-z]{12,40}$`)

export const patterns = {
  project: new RegExp(`^${uuid}$`),
  session: prefixed('gogol'),
  token: prefixed('tok'),
  approval: prefixed('apr'),
  schedule: prefixed('sch'),
  exec: prefixed('exec'),
  // A workspace may be named by its user, but never like an id of another kind.
  workspace: /^(?!(?:gogol|tok|apr|sch|exec|oub)_)[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?$/,
} as const

// Every request gets an id, and asking the system for randomness costs more than all else about it: it is asked for many at once.
const idBytes = 10
const random = Buffer.alloc(idBytes * 400)
let used = random.length

function short(prefix: string): string {
  if (used === random.length) {
    randomFillSync(random)
    used = 0
  }
  used += idBytes
  return `${prefix}_${random.toString('hex', used - idBytes, used)}`
}

export const newProjectId = () => randomUUID() as ProjectId
export const newWorkspaceId = () => randomUUID() as WorkspaceId
export const newSessionId = () => short('gogol') as SessionId
export const newTokenId = () => short('tok') as TokenId
export const newApprovalId = () => short('apr') as ApprovalId
export const newScheduleId = () => short('sch') as ScheduleId
export const newExecId = () => short('exec') as ExecId
export const newRunId = () => short('run')
export const newRequestId = () => short('req')
export const defaultWorkspace = 'default' as WorkspaceId
