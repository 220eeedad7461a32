// `./oubliette mcp setup CLIENT`: creates a token and writes the server into the configuration of an MCP client; `--remove`
// undoes both.
import { hostname, userInfo } from 'node:os'
import { join } from 'node:path'
import { nearest } from '../../../internal/lib/nearest.ts'
import { callTool, type Endpoint, endpoint } from '../client/call.ts'
import { checkout, options, place, Usage } from '../command.ts'
import { baseUrl } from '../daemon/daemon.ts'
import { type Client, clients } from './clients.ts'
import { changed, readText, replaceFile } from './config-file.ts'

function clientNamed(name: string | undefined): [string, Client] {
  const known = Object.keys(clients)
  if (name === undefined) throw new Usage('missing CLIENT', `clients: ${known.join(', ')}`)
  const client = Object.hasOwn(clients, name) ? clients[name] : undefined
  if (client) return [name, client]
  const [near] = nearest(name, known)
  throw new Usage(
    `unknown client "${name}"`,
    near ? `did you mean "${near}"?` : `clients: ${known.join(', ')}`,
  )
}

/** One token per client, user and machine: a second setup replaces the first. */
const tokenName = (client: string) => `mcp ${client} ${userInfo().username}@${hostname()}`.slice(0, 100)

async function tokensNamed(where: Endpoint, name: string): Promise<string[]> {
  const found: string[] = []
  let cursor: unknown
  do {
    const page = await callTool(where, 'token', { action: 'list', ...(cursor ? { cursor } : {}) })
    const tokens = page.tokens as { token_id: string; name: string; revoked_at?: string | null }[]
    found.push(...tokens.filter((it) => it.name === name && !it.revoked_at).map(({ token_id }) => token_id))
    cursor = page.next_cursor
  } while (cursor)
  return found
}

async function revokeAll(where: Endpoint, ids: string[]): Promise<void> {
  for (const token_id of ids) await callTool(where, 'token', { action: 'revoke', token_id })
}

async function scopeOf(where: Endpoint, project: string | undefined, read_only: boolean): Promise<string> {
  const suffix = read_only ? ':ro' : ''
  if (project === undefined) return `admin${suffix}`
  const { project_id } = await callTool(where, 'project', { action: 'get', project_id: project })
  return `project:${project_id}${suffix}`
}

export async function setup(args: string[]): Promise<number> {
  const { values, positionals } = options(
    args,
    {
      project: { type: 'string' },
      'read-only': { type: 'boolean', default: false },
      print: { type: 'boolean', default: false },
      remove: { type: 'boolean', default: false },
    },
    true,
  )
  const [name, client] = clientNamed(positionals[0])
  if (positionals.length > 1) throw new Usage(`unexpected argument "${positionals[1]}"`)
  const config = place()
  const base = baseUrl(config)
  const where = endpoint(config, base)
  const file = client.file(process.env)
  const before = readText(file)
  const token_name = tokenName(name)

  if (values.remove) {
    if (before !== undefined) {
      const after = changed(file, before, client.path, undefined)
      if (after !== before) replaceFile(file, after)
    }
    const revoked = await tokensNamed(where, token_name)
    await revokeAll(where, revoked)
    process.stdout.write(
      `Removed Oubliette from ${client.title} (${file}); tokens revoked: ${revoked.length}.\n`,
    )
    return 0
  }

  const program = [join(checkout, 'oubliette'), 'mcp', 'stdio']
  const url = `${base}/mcp`
  const connection = (token: string) => ({ url: name === 'claude-desktop' ? base : url, token, program })
  if (values.print) {
    const entry = client.entry(connection('<token>'))
    process.stdout.write(`${changed(file, '', client.path, entry).trimEnd()}\n`)
    return 0
  }
  // Before a token exists: a file that cannot be changed must not leave one behind.
  changed(file, before ?? '', client.path, client.entry(connection('')))
  const former = await tokensNamed(where, token_name)
  const scope = await scopeOf(where, values.project, values['read-only'])
  const { token, token_id } = await callTool(where, 'token', { action: 'create', name: token_name, scope })
  try {
    replaceFile(file, changed(file, before ?? '', client.path, client.entry(connection(String(token)))))
  } catch (error) {
    await revokeAll(where, [String(token_id)])
    throw error
  }
  await revokeAll(where, former)
  process.stdout.write(
    `Added Oubliette to ${client.title}: ${file}\n  token  ${token_id} (${scope})\n  next   ${client.next_step}\n`,
  )
  return 0
}
