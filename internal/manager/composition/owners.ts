// Which projects an id that a caller passes belongs to; the door checks the caller's scope against them.

/** A session never changes its project. One that is deleted since is found to be missing by the action itself. */
function cached(projectOf: (id: string) => Promise<string | undefined>) {
  const known = new Map<string, string>()
  return async (id: string): Promise<string | undefined> => {
    const found = known.get(id) ?? (await projectOf(id))
    if (found === undefined || known.has(id)) return found
    if (known.size >= 10_000) known.delete(known.keys().next().value!)
    known.set(id, found)
    return found
  }
}

type ProjectOf = (id: string) => Promise<string | undefined>
type Owner = { what: string; projectOf: (id: string) => Promise<string | string[] | undefined> }

export const createOwners = (of: {
  sessions: { projectOf: ProjectOf }
  approvals: { projectOf: ProjectOf }
  schedules: { projectsOf: (id: string) => Promise<string[]> }
  execs: { projectOf: ProjectOf }
}): Record<string, Owner> => ({
  project_id: { what: 'project', projectOf: async (id) => id },
  session_id: { what: 'session', projectOf: cached(of.sessions.projectOf) },
  approval_id: { what: 'approval', projectOf: of.approvals.projectOf },
  schedule_id: { what: 'schedule', projectOf: of.schedules.projectsOf },
  exec_id: { what: 'command', projectOf: of.execs.projectOf },
})
