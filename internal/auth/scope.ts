// What a scope allows, as pure functions. docs/tools.md has the matrix of `couldAllow`.
import { Fault } from '../fault.ts'
import { patterns } from '../ids.ts'

export type Scope =
  | { kind: 'admin'; read_only: boolean }
  | { kind: 'project'; project_id: string; read_only: boolean }

/** What an action needs. `admin:read` is open to `admin:ro`, `admin` is not. */
export const needs = [
  'admin',
  'admin:read',
  'global:write',
  'global:read',
  'project:write',
  'project:read',
] as const
export type Need = (typeof needs)[number]

export function parseScope(text: string): Scope {
  if (text === 'admin') return { kind: 'admin', read_only: false }
  if (text === 'admin:ro') return { kind: 'admin', read_only: true }
  const [kind, project_id, mode, ...rest] = text.split(':')
  if (kind === 'project' && project_id && patterns.project.test(project_id) && rest.length === 0)
    if (mode === undefined || mode === 'ro') return { kind: 'project', project_id, read_only: mode === 'ro' }
  throw new Fault('invalid', `"${text.slice(0, 80)}" is not a scope`, {
    hint: 'one of admin, admin:ro, project:<id or name>, project:<id or name>:ro',
  })
}

/** The project that a scope names, and the same scope of another project; undefined for a scope of all projects. */
export function projectInScope(
  text: string,
): { reference: string; as: (project_id: string) => string } | undefined {
  // A name may contain a colon: only the last `:ro` is the mode.
  const [, reference, mode = ''] = /^project:(.+?)(:ro)?$/s.exec(text) ?? []
  return reference === undefined
    ? undefined
    : { reference, as: (project_id) => `project:${project_id}${mode}` }
}

export function formatScope(scope: Scope): string {
  const base = scope.kind === 'admin' ? 'admin' : `project:${scope.project_id}`
  return scope.read_only ? `${base}:ro` : base
}

const reads = (need: Need) => need.endsWith(':read')

/** Whether this scope could satisfy this need for some project. Decides what is listed. */
export function couldAllow(scope: Scope, need: Need): boolean {
  if (scope.read_only && !reads(need)) return false
  return scope.kind === 'admin' || need === 'global:read' || need.startsWith('project:')
}

/** Whether this scope sees this project; if not, the project does not exist for it. */
export function sees(scope: Scope, project_id: string): boolean {
  return scope.kind === 'admin' || scope.project_id === project_id
}

/** Whether `inner` is within `outer`: what the key of a session or a new token may have. */
export function covers(outer: Scope, inner: Scope): boolean {
  if (outer.read_only && !inner.read_only) return false
  if (outer.kind === 'admin') return true
  return inner.kind === 'project' && inner.project_id === outer.project_id
}
