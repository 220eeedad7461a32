// Who may change which field of a project. An admin changes what bounds a project; a project token, and every droid with its
// scope, may only tighten it. This table is the only definition: `project update` checks it, `config_limits` and docs/tools.md
// show it, and the permission matrix has a row for each field.
import type { Caller } from '../../auth/caller.ts'
import { holdsEverything } from '../../auth/grant.ts'
import { parseScope } from '../../auth/scope.ts'
import type { Limits } from '../../config/limits.ts'
import { Fault } from '../../fault.ts'
import type { NetworkMode } from '../../runtime/runtime.ts'

/** The fields that `project update` can change. */
export type ProjectChange = {
  name: string
  description: string
  droid: string | null
  model: string | null
  workspace_isolation: boolean
  image: string | null
  container_type: string
  network: NetworkMode
  limits: Partial<Limits>
  disabled_tools: string[]
  mcp_servers: string[]
  credential_refs: string[]
  protected_paths: string[]
  api_scope_grant: string | null
}
/** The current values of the same fields, with the effective limits. */
export type Bounded = Omit<ProjectChange, 'limits'> & { limits: Limits }

type Field = keyof ProjectChange
type Free = { by: 'project' | 'admin' }
type Tighten<F extends Field> = {
  by: 'tighten'
  how: string
  tightens: (before: Bounded[F], after: ProjectChange[F]) => boolean
}
type Rule<F extends Field> = Free | Tighten<F>
type By = 'project' | 'admin' | 'tighten'

const networks: NetworkMode[] = ['none', 'internal', 'open']
const isSubset = (inner: string[], outer: string[]) => inner.every((name) => outer.includes(name))

/** 0 means no limit, which is the loosest. */
const heightOf = (name: keyof Limits, value: number) =>
  name === 'max_cost_usd' && value === 0 ? Number.POSITIVE_INFINITY : value
const isLower = (before: Limits, after: Partial<Limits>) =>
  (Object.entries(after) as [keyof Limits, number | undefined][]).every(
    ([name, value]) => value === undefined || heightOf(name, value) <= heightOf(name, before[name]),
  )

const fewer = {
  by: 'tighten' as const,
  how: 'only names that it already has',
  tightens: (before: string[], after: string[]) => isSubset(after, before),
}
const further = {
  by: 'tighten' as const,
  how: 'all names that it already has, and more',
  tightens: (before: string[], after: string[]) => isSubset(before, after),
}

export const boundaries: { [F in Field]: Rule<F> } = {
  name: { by: 'project' },
  description: { by: 'project' },
  droid: { by: 'project' },
  model: { by: 'project' },
  workspace_isolation: { by: 'project' },
  image: { by: 'admin' },
  container_type: { by: 'admin' },
  api_scope_grant: { by: 'admin' },
  network: {
    by: 'tighten',
    how: 'from open to internal to none',
    tightens: (before, after) => networks.indexOf(after) <= networks.indexOf(before),
  },
  limits: { by: 'tighten', how: 'lower than the current limits', tightens: isLower },
  disabled_tools: further,
  protected_paths: further,
  mcp_servers: fewer,
  credential_refs: fewer,
}

export const changeableBy = (): Record<Field, By> =>
  Object.fromEntries(Object.entries(boundaries).map(([field, { by }]) => [field, by])) as Record<Field, By>

const isSame = (before: unknown, after: unknown) => JSON.stringify(before) === JSON.stringify(after)

function refusal<F extends Field>(field: F, before: Bounded[F], after: ProjectChange[F]): string | undefined {
  const rule: Free | Tighten<F> = boundaries[field]
  if (rule.by === 'project' || isSame(before, after)) return undefined
  if (rule.by === 'admin') return 'only an admin may change it'
  const { tightens, how } = rule as Tighten<F>
  return tightens(before, after) ? undefined : `a project token may only tighten it: ${how}`
}

/** Throws `forbidden` for the first field that this caller may not change in this way. `before` is locked. */
export function requireMayChange(caller: Caller, before: Bounded, change: Partial<ProjectChange>): void {
  requireMayGrant(caller, before.api_scope_grant, change.api_scope_grant)
  if (holdsEverything(caller)) return
  for (const field of Object.keys(change) as Field[]) {
    const after = change[field]
    const reason = after === undefined ? undefined : refusal(field, before[field], after)
    if (reason)
      throw new Fault('forbidden', `project.update: ${field}: ${reason}`, {
        hint: 'config_limits shows who may change what',
      })
  }
}

/** A grant outlives the session that would set it, and sessions never decide the scope of sessions. */
export function requireMayGrant(
  caller: Caller,
  before: string | null,
  wanted: string | null | undefined,
): void {
  if (wanted === undefined || wanted === null || wanted === before || !caller.session_id) return
  throw new Fault(
    'forbidden',
    'api_scope_grant cannot be set by a session or with a token that a session created',
    {
      hint: 'set it with an admin token that was not created by a session',
    },
  )
}

export const lacksGrant = (project_id: string, grant: string | null) =>
  new Fault('forbidden', `project ${project_id} has the grant ${grant}, which exceeds your scope`, {
    hint: 'processes in its container can use the keys of its sessions; use another project',
  })

/** The scope of a grant; `project_id` is undefined for a project that is being created. */
export function parseGrant(text: string, project_id: string | undefined) {
  const scope = parseScope(text)
  if (scope.kind === 'project' && scope.project_id === project_id)
    throw new Fault('invalid', `api_scope_grant ${text} is the project itself, which needs no grant`)
  return scope
}
