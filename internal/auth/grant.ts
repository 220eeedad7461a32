// What an admin has granted to a project beyond the project itself, as pure functions. All processes of a container share
// one uid, so a caller that acts in it can read the keys of its sessions: no key in it may do more than its project, unless
// an admin granted that, and then no caller with less than the grant may act there.
import type { Caller } from './caller.ts'
import { covers, parseScope, type Scope } from './scope.ts'

/** Whether a scope reaches nothing but this project. */
export const isWithin = (scope: Scope, project_id: string | undefined): boolean =>
  scope.kind === 'project' && scope.project_id === project_id

/** Whether a session of this project may have a key of this scope. */
export const isGranted = (grant: string | null, project_id: string, scope: Scope): boolean =>
  isWithin(scope, project_id) || (grant !== null && covers(parseScope(grant), scope))

/** A session of the project runs in its container already: its spawner holds the grant. */
export const isInside = (caller: Caller, project_id: string): boolean =>
  caller.inside_project_id === project_id

/** Whether a caller that may write to a project may do so with this grant. */
export const mayAct = (caller: Caller, project_id: string, grant: string | null): boolean =>
  grant === null || isInside(caller, project_id) || covers(caller.scope, parseScope(grant))

/** Holds every possible grant, so that none has to be queried. */
export const holdsEverything = ({ scope }: Caller): boolean => scope.kind === 'admin' && !scope.read_only
