import { unknown } from '../../fault.ts'
import type { Db } from '../../store/open.ts'
import { type ProjectWithContainer, projectById } from '../../store/rows/projects.ts'

/** The row of a project. Throws `not_found` if it does not exist or is being deleted. */
export async function requireProject(db: Db, project_id: string): Promise<ProjectWithContainer> {
  const row = await projectById(db, project_id)
  if (!row || row.deleting_at) throw unknown('project', project_id)
  return row
}
