// What an admin has granted to a project beyond the project itself, as pure functions. All processes of a container share
// one uid, so whoever acts in it can read the keys of its sessions: no key in it may do more than its project, unless an
// admin granted that, and then nobody with less than the grant acts there.
import type { Caller } from './caller.ts'
import { covers, parseScope, type Scope } from './scope.ts'

/** Whether a scope reaches nothing but this project. */
export const isWithin = (scope: Scope, project_id: string | undefined): boolean =>
  scope.kind === 'project' && scope.project_id === project_id

/** Whether a session of this project may have a key of this scope. */
export const isGranted = (grant: string | null, project_id: string, scope: Scope): boolean =>
  isWithin(scope, project_id) || (grant !== null && covers(parseScope(grant), scope))

/**
 * Whether somebody who may write to a project may do so with this grant. A session of the project runs in its container
 * already: whoever spawned it holds the grant.
 */
export const mayAct = (caller: Caller, project_id: string, grant: string | null): boolean =>
  grant === null || caller.inside_project_id === project_id || covers(caller.scope, parseScope(grant))

/** Holds every grant there can be, so that nothing has to be looked up. */
export const holdsEverything = ({ scope }: Caller): boolean => scope.kind === 'admin' && !scope.read_only
