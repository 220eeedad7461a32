// Names of projects in the input of a call, replaced by ids before the door decides what the caller may do: `project_id`,
// the targets of a schedule, and scopes. An id costs nothing, all names of a call together cost one query. A name is looked
// up once per call, so that a rename meanwhile does not change what the call is about.
import { projectInScope, type Scope } from '../auth/scope.ts'
import { isProjectReference, patterns } from '../ids.ts'
import type { ProjectNames } from '../manager/project/names.ts'

type Input = Record<string, unknown>
type Target = { project_id: string }

const scopeFields = ['scope', 'api_scope', 'api_scope_grant'] as const

const isName = (value: unknown): value is string =>
  typeof value === 'string' && !patterns.project.test(value) && isProjectReference(value)

/** Only of a scope that names its project; anything else is left to the check of the scope. */
function namedScope(value: unknown) {
  const named = typeof value === 'string' ? projectInScope(value) : undefined
  return named && isName(named.reference) ? named : undefined
}

const targetsOf = ({ targets }: Input): Target[] => (Array.isArray(targets) ? (targets as Target[]) : [])

function* namesIn(input: Input): Generator<string> {
  if (isName(input.project_id)) yield input.project_id
  for (const { project_id } of targetsOf(input)) if (isName(project_id)) yield project_id
  for (const field of scopeFields) {
    const named = namedScope(input[field])
    if (named) yield named.reference
  }
}

const seenBy = (scope: Scope) => ({ only_id: scope.kind === 'project' ? scope.project_id : undefined })

/** The input with ids only. Throws `not_found` for a name of no project that this scope sees. */
export async function withIds<I extends Input>(names: ProjectNames, scope: Scope, input: I): Promise<I> {
  const given = [...new Set(namesIn(input))]
  if (given.length === 0) return input
  const ids = await names.idsOf(given, seenBy(scope))
  const missing = given.find((name) => !ids.has(name))
  if (missing !== undefined) throw await names.unknown(missing, seenBy(scope))
  const idOf = (reference: string) => ids.get(reference) ?? reference
  const resolved: Input = { ...input }
  if (isName(input.project_id)) resolved.project_id = idOf(input.project_id)
  if (Array.isArray(input.targets))
    resolved.targets = targetsOf(input).map((target) => ({ ...target, project_id: idOf(target.project_id) }))
  for (const field of scopeFields) {
    const named = namedScope(input[field])
    if (named) resolved[field] = named.as(idOf(named.reference))
  }
  return resolved as I
}
