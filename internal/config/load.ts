// Reads the settings of a server or a command: the config file of the home and the environment. Parsed once in `main`;
// each room receives the slice that it needs.
import { statSync } from 'node:fs'
import type { z } from 'zod'
import { Fault } from '../fault.ts'
import { Secret } from '../log.ts'
import { defaultDroids } from './default-droids.ts'
import { type Credential, isLiteral, readCredentials, secretOf } from './models.ts'
import { addressOf, adminTokenOf, configFileOf, homeOf, parseJsonc, readConfigFile } from './place.ts'
import { type ConfigFile, configSchema } from './schema.ts'

/** The config without its secrets, which `Settings` holds as `Secret`. */
export type Config = Omit<ConfigFile, 'credentials' | 'database_url'>

export type { Credential }
export type ConfigSource = 'file' | 'environment' | 'default'

export type Settings = {
  credentials: ReadonlyMap<string, Credential>
  home: string
  config: Config
  database_url: Secret | undefined
  docker_host: string | undefined
  /** By key of the config, where its value comes from. */
  sources: Record<string, ConfigSource>
  admin_token: Secret | undefined
  /** Errors that prevent a server from starting. Commands that only call a running server ignore them. */
  problems: Fault[]
  /** Messages for the operator that do not prevent a start. */
  warnings: string[]
}

function describeIssues(error: z.ZodError): string {
  return error.issues
    .map((issue) => {
      const where = issue.path.join('.')
      if (issue.code === 'unrecognized_keys')
        return `unknown key ${issue.keys.map((key) => `"${[...issue.path, key].join('.')}"`).join(', ')}`
      return `${where}: ${issue.message}`
    })
    .join('; ')
}

/** Where a value is read from the environment; elsewhere, `${env:NAME}` would be used as it is written. */
const fromEnvironment = /^(database_url|credentials\.[^.]+\.(key|session_token))$/

function* stringsIn(value: unknown, path: string[] = []): Generator<{ path: string; text: string }> {
  if (typeof value === 'string') yield { path: path.join('.'), text: value }
  if (typeof value !== 'object' || value === null) return
  for (const [name, inner] of Object.entries(value)) yield* stringsIn(inner, [...path, name])
}

function checkReferences(given: unknown, file: string): void {
  for (const { path, text } of stringsIn(given))
    if (text.includes('${env:') && (isLiteral(text) || !fromEnvironment.test(path)))
      throw new Fault('invalid', `${file}: ${path} cannot be read from the environment with \${env:NAME}`, {
        hint: '${env:NAME} is the whole value of credentials.*.key, credentials.*.session_token or database_url',
      })
}

function checkDefaultDroid({ default_droid, droids }: ConfigFile, file: string): void {
  if (default_droid === 'shell' || Object.hasOwn(droids, default_droid)) return
  throw new Fault('invalid', `${file}: default_droid: no droid "${default_droid}"`, {
    hint: `droids are ${['shell', ...Object.keys(droids)].join(', ')}`,
  })
}

export function parseConfig(text: string, file: string): ConfigFile {
  const given = parseJsonc(text, file)
  const parsed = configSchema.safeParse(given)
  if (!parsed.success)
    throw new Fault('invalid', `${file}: ${describeIssues(parsed.error)}`, {
      hint: 'see docs/configuration.md for all keys',
    })
  checkReferences(given, file)
  return parsed.data
}

/** A literal secret in a file that other users can read. */
function exposed(file: string, { credentials, database_url }: ConfigFile): Fault | undefined {
  const secrets = Object.values(credentials).flatMap(({ key, session_token }) => [key, session_token])
  if (![...secrets, database_url].some((text) => text !== undefined && isLiteral(text))) return undefined
  const mode = (statSync(file, { throwIfNoEntry: false })?.mode ?? 0) & 0o777
  if ((mode & 0o077) === 0) return undefined
  return new Fault(
    'forbidden',
    `${file} holds a secret and can be read by other users (mode ${mode.toString(8).padStart(4, '0')})`,
    { hint: `run "chmod 600 ${file}", or replace the secret with \${env:NAME}` },
  )
}

/** An unset variable is an error: falling back to the embedded database would start with the wrong data. */
function databaseUrl(given: string | undefined, env: NodeJS.ProcessEnv, file: string) {
  if (env.DATABASE_URL) return { secret: new Secret(env.DATABASE_URL) }
  if (given === undefined) return {}
  const { secret, unset } = secretOf(given, env)
  if (secret) return { secret }
  return {
    problem: new Fault(
      'invalid',
      `${file}: database_url refers to the environment variable ${unset}, which is not set`,
    ),
  }
}

function sourcesOf(config: object, given: unknown, env: NodeJS.ProcessEnv): Record<string, ConfigSource> {
  const overridden: Record<string, string | undefined> = {
    address: env.OUBLIETTE_ADDRESS,
    database_url: env.DATABASE_URL,
  }
  const sourceOf = (key: string): ConfigSource => {
    if (overridden[key]) return 'environment'
    return Object.hasOwn(given as object, key) ? 'file' : 'default'
  }
  return Object.fromEntries(
    [...Object.keys(config), 'credentials', 'database_url'].map((key) => [key, sourceOf(key)]),
  )
}

/** `checkout` is the root of the source tree, if the program runs from one. */
export function loadSettings(env: NodeJS.ProcessEnv, checkout: string | undefined): Settings {
  const home = homeOf(env, checkout)
  return settingsOf(env, home, readConfigFile(configFileOf(home)))
}

/** As if `text` were the config file of this home. */
export function settingsOf(env: NodeJS.ProcessEnv, home: string, text: string): Settings {
  const file = configFileOf(home)
  const parsed = parseConfig(text, file)
  parsed.address = addressOf(env, parsed.address)
  parsed.droids = { ...defaultDroids, ...parsed.droids }
  checkDefaultDroid(parsed, file)
  const admin_token = adminTokenOf(env)
  const { credentials: configured, database_url: given, ...config } = parsed
  const { credentials, warnings } = readCredentials(configured, env, file)
  const database = databaseUrl(given, env, file)
  return {
    home,
    config,
    credentials,
    database_url: database.secret,
    docker_host: env.DOCKER_HOST || undefined,
    sources: sourcesOf(config, parseJsonc(text, file), env),
    admin_token,
    problems: [exposed(file, parsed), database.problem].filter((problem) => problem !== undefined),
    warnings,
  }
}
