// A booted server with an admin's client, and eyes for what it leaves in the engine, on the disk and in the database.
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import Docker from 'dockerode'
import pg from 'pg'
import type { FaultShape } from '../../internal/fault.ts'
import { knownCluster } from '../../internal/store/embedded/cluster.ts'
import { connect, type TestClient } from './client.ts'
import { cloneDatabase } from './database.ts'
import { type BootOptions, bootServer, type TestServer } from './server.ts'

export const docker = new Docker()

type Args = Record<string, unknown>
/** What a tool answered; the suites say what they expect to find in it. */
// biome-ignore lint/suspicious/noExplicitAny: an answer is checked by assertions, not by the compiler.
export type Answer = Record<string, any>

export type Booted = {
  server: TestServer
  client(): TestClient
  /** The structured answer; throws if it is an error. */
  ok(tool: string, args?: Args): Promise<Answer>
  /** The error; throws if there is none. */
  fault(tool: string, args?: Args): Promise<FaultShape>
  /** A new project's id; its name is unique. */
  project(fields?: Args): Promise<string>
  exec(project_id: string, command: string | string[], more?: Args): Promise<Answer>
  query<Row extends pg.QueryResultRow>(text: string, values?: unknown[]): Promise<Row[]>
  reconnect(): Promise<void>
  stop(): Promise<void>
}

let made = 0
export const uniqueName = (): string => `p${process.pid}-${Date.now().toString(36)}-${++made}`

export async function boot(options: Omit<BootOptions, 'database_url'> = {}): Promise<Booted> {
  const database = options.embedded ? undefined : await cloneDatabase()
  const server = await bootServer({ ...options, ...(database ? { database_url: database.url } : {}) }).catch(
    async (error) => {
      await database?.drop()
      throw error
    },
  )
  let client = await connect(server, server.admin_token)
  const pool = new pg.Pool({
    connectionString: database?.url ?? (await knownCluster(server.home)).url,
    max: 2,
  })
  pool.on('error', () => undefined)

  async function ok(tool: string, args: Args = {}): Promise<Answer> {
    const { structured, is_error, text } = await client.call(tool, args)
    if (is_error) throw new Error(`${tool} ${String(args.action ?? '')}: ${text}`)
    return structured
  }

  return {
    server,
    client: () => client,
    ok,
    async fault(tool, args = {}) {
      const { structured, is_error, text } = await client.call(tool, args)
      if (!is_error) throw new Error(`${tool} ${String(args.action ?? '')} was no error: ${text}`)
      return structured.error as FaultShape
    },
    project: async (fields = {}) =>
      (await ok('project', { action: 'create', name: uniqueName(), network: 'none', ...fields })).project_id,
    exec: async (project_id, command, more = {}) =>
      await ok('container', { action: 'exec', project_id, command, ...more }),
    query: async (text, values) => (await pool.query(text, values)).rows,
    async reconnect() {
      await client.close().catch(() => undefined)
      client = await connect(server, server.admin_token)
    },
    async stop() {
      await client.close().catch(() => undefined)
      await pool.end()
      await server.stop().finally(() => database?.drop())
    },
  }
}

export async function instanceOf(server: TestServer): Promise<string> {
  return (await readFile(join(server.home, 'instance-id'), 'utf8')).trim()
}

export type Evidence = { containers: string[]; networks: string[]; volumes: string[] }

/** Project ids of what carries this server's label. */
export async function inEngine(server: TestServer): Promise<Evidence> {
  const filters = { label: [`oubliette.instance=${await instanceOf(server)}`] }
  const [containers, networks, { Volumes }] = await Promise.all([
    docker.listContainers({ all: true, filters }),
    docker.listNetworks({ filters }),
    docker.listVolumes({ filters }),
  ])
  const ids = (found: { Labels?: Record<string, string> | null }[]) =>
    found.map(({ Labels }) => Labels?.['oubliette.project'] ?? '?').sort()
  return { containers: ids(containers), networks: ids(networks), volumes: ids(Volumes ?? []) }
}

const names = async (directory: string): Promise<string[]> =>
  await readdir(directory).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return []
    throw error
  })

export async function onDisk(server: TestServer): Promise<{ projects: string[]; sockets: string[] }> {
  const [projects, sockets] = await Promise.all([
    names(join(server.home, 'projects')),
    names(join(server.home, 'sockets')),
  ])
  return { projects: projects.sort(), sockets: sockets.sort() }
}

/** The one container of a project, as the engine sees it. */
export async function containerOf(server: TestServer, project_id: string): Promise<Docker.Container> {
  const label = [`oubliette.instance=${await instanceOf(server)}`, `oubliette.project=${project_id}`]
  const found = await docker.listContainers({ all: true, filters: { label } })
  if (found.length !== 1) throw new Error(`project ${project_id} has ${found.length} containers`)
  return docker.getContainer(found[0]!.Id)
}

/** Work on each, so many at a time; all are tried, and the first failure is thrown. */
export async function each<T, R>(items: T[], at_once: number, work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = []
  const failures: unknown[] = []
  let next = 0
  const lane = async () => {
    while (next < items.length) {
      const index = next++
      try {
        results[index] = await work(items[index]!)
      } catch (error) {
        failures.push(error)
      }
    }
  }
  await Promise.all(Array.from({ length: at_once }, lane))
  if (failures.length > 0) throw failures[0]
  return results
}
