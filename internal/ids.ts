// The format of each kind of id, and how a new one is generated. An id is a plain string everywhere; its prefix tells its kind.
import { randomFillSync, randomUUID } from 'node:crypto'

const uuid = '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}'
const prefixed = (prefix: string) => new RegExp(`^${prefix}_[0-9a-z]{12,40}$`)

export const patterns = {
  project: new RegExp(`^${uuid}$`),
  session: prefixed('gogol'),
  token: prefixed('tok'),
  approval: prefixed('apr'),
  schedule: prefixed('sch'),
  exec: prefixed('exec'),
  // Users may choose the name of a workspace, but not one that looks like an id of another kind.
  workspace: /^(?!(?:gogol|tok|apr|sch|exec|oub)_)[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?$/,
} as const

/** Every kind of id, also those that later releases add, in any case. */
const idShape = new RegExp(
  `^(?:${uuid}|(?:gogol|tok|apr|sch|exec|run|req|err|oub)_[0-9a-z]{12,}|[a-z]{2,12}_[0-9a-f]{20})$`,
  'i',
)
export const looksLikeId = (text: string): boolean => idShape.test(text)

export const longestProjectName = 100
const oneLine = /^[^\p{Cc}\p{Z}](?:[^\p{Cc}]*[^\p{Cc}\p{Z}])?$/u
export const isOneLine = (text: string): boolean => oneLine.test(text)

const isProjectName = (text: string): boolean =>
  text.length <= longestProjectName && isOneLine(text) && !looksLikeId(text)

/** A project by its id or name, which cannot be confused. */
export const isProjectReference = (text: string): boolean =>
  patterns.project.test(text) || isProjectName(text)

// Every request gets an id, and a system call for randomness is its largest cost: random bytes are read for many ids at once.
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

export const newProjectId = () => randomUUID()
export const newWorkspaceId = () => randomUUID()
export const newSessionId = () => short('gogol')
export const newTokenId = () => short('tok')
export const newApprovalId = () => short('apr')
export const newScheduleId = () => short('sch')
export const newExecId = () => short('exec')
export const newUpstreamId = () => short('ups')
export const newUpstreamCallId = () => short('call')
export const newTerminalId = () => short('term')
export const newRunId = () => short('run')
export const newRequestId = () => short('req')
export const defaultWorkspace = 'default'
