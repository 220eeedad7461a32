// Calls a tool of the running server over MCP, as any other caller does.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import type { Settings } from '../../../internal/config/load.ts'
import { Fault, type FaultShape, messageOf } from '../../../internal/fault.ts'

// Some calls take hours (an image build, a long command). Ctrl-C cancels them.
const call_timeout_ms = 24 * 60 * 60 * 1000

export type Endpoint = { url: URL; token: string }

export function tokenOf(env: NodeJS.ProcessEnv, home: string): string {
  const given = env.OUBLIETTE_TOKEN || env.OUBLIETTE_ADMIN_TOKEN
  if (given) return given
  const file = join(home, 'admin.token')
  try {
    return readFileSync(file, 'utf8').trim()
  } catch (error) {
    throw new Fault('unauthenticated', `no token found: ${messageOf(error)}`, {
      hint: 'set OUBLIETTE_TOKEN, or start the server with "./oubliette up", which creates a token',
      cause: error,
    })
  }
}

function unreachable(url: URL, error: unknown): Fault {
  const text = messageOf(error)
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause.message : ''
  if (/\b401\b|unauthori[sz]ed|unauthenticated/i.test(text))
    return new Fault('unauthenticated', `the server at ${url.origin} rejected the token`, {
      hint: 'check OUBLIETTE_TOKEN and OUBLIETTE_HOME',
      cause: error,
    })
  return new Fault('unavailable', `cannot connect to the server at ${url.origin}: ${cause || text}`, {
    hint: 'run "./oubliette status" to check the server, or "./oubliette up" to start it',
    cause: error,
  })
}

export async function callTool(
  where: Endpoint,
  name: string,
  args: Record<string, unknown>,
  options: { signal?: AbortSignal; progress?: (message: string) => void } = {},
): Promise<Record<string, unknown>> {
  const client = new Client({ name: 'oubliette-cli', version: '1' }, { versionNegotiation: { mode: 'auto' } })
  const transport = new StreamableHTTPClientTransport(where.url, {
    requestInit: { headers: { authorization: `Bearer ${where.token}` } },
  })
  try {
    await client.connect(transport, { timeout: 10_000 })
    const result = await client.callTool(
      { name, arguments: args },
      {
        timeout: call_timeout_ms,
        ...(options.signal ? { signal: options.signal } : {}),
        onprogress: ({ message }) => options.progress?.(message ?? ''),
      },
    )
    const structured = (result.structuredContent ?? {}) as Record<string, unknown>
    if (!result.isError) return structured
    const error = structured.error as FaultShape | undefined
    const [first] = result.content
    const text = first?.type === 'text' ? first.text : 'the call failed'
    throw new Fault(
      error?.kind ?? 'internal',
      error?.message ?? text,
      error?.hint ? { hint: error.hint } : {},
    )
  } catch (error) {
    throw error instanceof Fault ? error : unreachable(where.url, error)
  } finally {
    await client.close().catch(() => undefined)
  }
}

export const endpoint = (settings: Settings, base: string): Endpoint => ({
  url: new URL('/mcp', base),
  token: tokenOf(process.env, settings.home),
})

type ListedProject = { project_id: string; name: string; container: { status: string } }

/** All pages of `project list`. */
export async function listProjects(where: Endpoint): Promise<ListedProject[]> {
  const projects: ListedProject[] = []
  let cursor: string | undefined
  do {
    const page = await callTool(where, 'project', { action: 'list', ...(cursor ? { cursor } : {}) })
    projects.push(...(page.projects as ListedProject[]))
    cursor = typeof page.next_cursor === 'string' ? page.next_cursor : undefined
  } while (cursor)
  return projects
}
