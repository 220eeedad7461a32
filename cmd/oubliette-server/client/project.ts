// A project by its id, its name, or the beginning of its id as tables show it.
import { Fault } from '../../../internal/fault.ts'
import { patterns } from '../../../internal/ids.ts'
import { type Endpoint, listProjects } from './call.ts'

const shortest = 4

export async function resolveProject(where: Endpoint, given: string): Promise<string> {
  if (patterns.project.test(given)) return given
  const projects = await listProjects(where)
  const named = projects.find(({ name }) => name.toLowerCase() === given.toLowerCase())
  if (named) return named.project_id
  const begin = projects.filter(
    ({ project_id }) => given.length >= shortest && project_id.startsWith(given.toLowerCase()),
  )
  if (begin.length === 1) return begin[0]!.project_id
  throw new Fault('not_found', `no project ${given}`, { hint: 'see "./oubliette project list"' })
}
