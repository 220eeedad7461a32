// What several checks need, each read once and only when it is asked for. A part that fails throws in every check that asks for
// it; one check reports it, and the others say that they could not check.
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { type Settings, settingsOf } from '../../../internal/config/load.ts'
import { configFileOf, homeOf, parseJsonc, readConfigFile } from '../../../internal/config/place.ts'
import { configSchema } from '../../../internal/config/schema.ts'
import { Fault } from '../../../internal/fault.ts'
import { type Log, Secret } from '../../../internal/log.ts'
import type { EngineDescription, Owned, Runtime } from '../../../internal/runtime/runtime.ts'
import { type Cluster, knownCluster } from '../../../internal/store/embedded/cluster.ts'
import { hasEmbedded } from '../../../internal/store/embedded/embedded.ts'
import { processesOf } from '../../../internal/store/embedded/postmaster.ts'
import { type Examined, examineDatabase } from '../../../internal/store/examine.ts'
import { checkout } from '../command.ts'
import { type Found, findServer } from '../daemon/daemon.ts'
import { engineOf } from '../setup/runtime.ts'

const databaseMs = 3_000
const engineMs = 3_000

export type Database =
  | { kind: 'embedded' | 'external'; state: 'examined'; examined: Examined }
  /** The embedded one does not run: it starts with the server. */
  | { kind: 'embedded'; state: 'stopped' }
  /** Before the first start. */
  | { kind: 'embedded'; state: 'absent' }

type Engine = EngineDescription & { clock: { at_ms: number; asked_ms: number; answered_ms: number } }

export type Facts = {
  home: string
  env: NodeJS.ProcessEnv
  /** Of the config without its invalid keys. */
  settings: Settings
  /** What is wrong with the config or the environment. */
  refused: Fault[]
  offline: boolean
  /** The instance that the home records; undefined before the first start. */
  instance: string | undefined
  server(): Promise<Found>
  runtime(): Promise<Runtime>
  engine(): Promise<Engine>
  seen(): Promise<Seen>
  database(): Promise<Database>
  /** Read anew at each call. */
  databaseNow(): Promise<Database>
  /** The cluster of the embedded database and the ids of its processes; undefined if there is none. */
  cluster(): Promise<{ cluster: Cluster; pids: number[] } | undefined>
}

export type Seen = { engine: Owned[]; processes: string[]; projects: string[]; sockets: string[] }

function once<T>(read: () => Promise<T>): () => Promise<T> {
  let value: Promise<T> | undefined
  return () => {
    const reading = value ?? read()
    value = reading
    reading.catch(() => undefined)
    return reading
  }
}

const faultOf = (thrown: unknown): Fault => {
  if (thrown instanceof Fault) return thrown
  throw thrown
}

/** The text of the config without the keys that the schema refuses, so that the other checks use the rest of it. */
function salvaged(text: string, file: string): string {
  let given: unknown
  try {
    given = parseJsonc(text, file)
  } catch {
    return ''
  }
  if (typeof given !== 'object' || given === null || Array.isArray(given)) return ''
  const parsed = configSchema.safeParse(given)
  const bad = new Set(
    parsed.success
      ? []
      : parsed.error.issues.flatMap((issue) =>
          issue.path.length === 0 && issue.code === 'unrecognized_keys'
            ? issue.keys
            : [String(issue.path[0])],
        ),
  )
  return JSON.stringify(Object.fromEntries(Object.entries(given).filter(([key]) => !bad.has(key))))
}

/** As a server would read them, or as near to that as what is given allows. */
export function readSettings(env: NodeJS.ProcessEnv): Pick<Facts, 'settings' | 'refused' | 'home'> {
  const home = homeOf(env, checkout)
  const file = configFileOf(home)
  const refused: Fault[] = []
  let text = ''
  try {
    text = readConfigFile(file)
    return { home, settings: settingsOf(env, home, text), refused }
  } catch (error) {
    refused.push(faultOf(error))
  }
  const { OUBLIETTE_ADDRESS: _address, OUBLIETTE_ADMIN_TOKEN: _token, ...rest } = env
  for (const attempt of [
    () => settingsOf(env, home, salvaged(text, file)),
    () => settingsOf(rest, home, salvaged(text, file)),
    () => settingsOf(rest, home, ''),
  ])
    try {
      return { home, settings: attempt(), refused }
    } catch (error) {
      const fault = faultOf(error)
      if (!refused.some(({ message }) => message === fault.message)) refused.push(fault)
    }
  throw refused[0]!
}

/** Or will be: it may not exist yet. */
export const isHome = (home: string): boolean =>
  statSync(home, { throwIfNoEntry: false })?.isDirectory() ?? true

function namesIn(directory: string): string[] {
  return existsSync(directory) ? readdirSync(directory) : []
}

export function instanceOf(home: string): string | undefined {
  try {
    return readFileSync(join(home, 'instance-id'), 'utf8').trim() || undefined
  } catch {
    return undefined
  }
}

const quiet: Log = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
  with: () => quiet,
}

export function gatherFacts(env: NodeJS.ProcessEnv, offline: boolean): Facts {
  const { home, settings, refused } = readSettings(env)
  const instance = instanceOf(home)
  const runtime = once(() => engineOf(settings, instance ?? 'none', quiet))
  const cluster = once(async () => {
    if (!hasEmbedded(home)) return undefined
    const known = await knownCluster(home)
    return { cluster: known, pids: (await processesOf(known)).map(({ pid }) => pid) }
  })
  const examined = async (kind: Database['kind'], url: Secret): Promise<Database> => ({
    kind,
    state: 'examined',
    examined: await examineDatabase(url, databaseMs),
  })
  const databaseNow = async (): Promise<Database> => {
    if (settings.database_url) return await examined('external', settings.database_url)
    const found = await cluster()
    if (!found) return { kind: 'embedded', state: 'absent' }
    if (found.pids.length === 0) return { kind: 'embedded', state: 'stopped' }
    return await examined('embedded', new Secret(found.cluster.url))
  }
  const seen = once(async (): Promise<Seen> => {
    const engine = await runtime()
    // Before anything that takes longer: an engine that hangs is given up here.
    await engine.ping(AbortSignal.timeout(engineMs))
    const [owned, processes] = await Promise.all([engine.owned(), engine.unusedProcesses()])
    return {
      engine: owned,
      processes,
      projects: namesIn(join(home, 'projects')),
      sockets: namesIn(join(home, 'sockets')),
    }
  })
  return {
    home,
    env,
    settings,
    refused,
    offline,
    instance,
    server: once(async () =>
      isHome(home) ? await findServer(settings) : { holder: undefined, state: undefined, is_ours: false },
    ),
    runtime,
    engine: once(async () => {
      const asked_ms = Date.now()
      const description = await (await runtime()).describe(AbortSignal.timeout(engineMs))
      const clock = { at_ms: Date.parse(description.time), asked_ms, answered_ms: Date.now() }
      return { ...description, clock }
    }),
    seen,
    cluster,
    database: once(databaseNow),
    databaseNow,
  }
}
