// Projects by name: the ids of names that callers give, and the names of ids in results. What a caller does not see takes
// part in nothing here, so that the name of a foreign project gets exactly the answer of an unknown one.
import { LRUCache } from 'lru-cache'
import { Fault } from '../../fault.ts'
import { didYouMean } from '../../lib/nearest.ts'
import type { Db } from '../../store/open.ts'
import { namesLike, projectIdsByName, projectNames } from '../../store/rows/projects.ts'

/** `only_id`: the only project that the caller sees. */
type Seen = { only_id: string | undefined }

const rememberAtMost = 10_000

export function createProjectNames(db: Db) {
  const known = new LRUCache<string, string>({ max: rememberAtMost })
  let changes = 0

  return {
    /** The ids of these names; an unknown name is missing. One query. */
    idsOf: (names: string[], { only_id }: Seen): Promise<Map<string, string>> =>
      projectIdsByName(db, names, only_id),

    unknown: async (name: string, { only_id }: Seen): Promise<Fault> => {
      const near = await namesLike(db, name, only_id)
      const by_id = near.find((one) => one.by_id)
      const hint = by_id
        ? { hint: `an id must be complete; did you mean "${by_id.name}"?` }
        : didYouMean(
            name,
            near.map((one) => one.name),
          )
      return new Fault('not_found', `no project "${name}"`, hint)
    },

    /** The names of these projects. Results carry them, so they are remembered; only one server writes to a database. */
    async of(project_ids: string[]): Promise<(project_id: string) => string> {
      const found = new Map(project_ids.map((id) => [id, known.get(id)]))
      const missing = [...found].flatMap(([id, name]) => (name === undefined ? [id] : []))
      const before = changes
      if (missing.length > 0)
        for (const { id, name } of await projectNames(db, missing)) {
          found.set(id, name)
          // What was read before a change must not be remembered after it.
          if (before === changes) known.set(id, name)
        }
      return (project_id) => found.get(project_id) ?? ''
    },

    /** After a project was renamed or deleted. */
    forget(project_id: string): void {
      changes += 1
      known.delete(project_id)
    },
  }
}
export type ProjectNames = ReturnType<typeof createProjectNames>
