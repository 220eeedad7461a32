// All projects of a running server, with what the commands want to know of them.
import { callTool, type Endpoint } from './tool-command/call.ts'

type Listed = { project_id: string; name: string; container: { status: string } }

export async function everyProject(where: Endpoint): Promise<Listed[]> {
  const found: Listed[] = []
  let cursor: string | undefined
  do {
    const page = await callTool(where, 'project', { action: 'list', ...(cursor ? { cursor } : {}) })
    found.push(...(page.projects as Listed[]))
    cursor = typeof page.next_cursor === 'string' ? page.next_cursor : undefined
  } while (cursor)
  return found
}
