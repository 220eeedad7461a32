// Where the server of a home is: the home, the address and the admin token of the environment. Commands that only call a
// running server read nothing else, so this module loads no schema library; `load.ts` applies the same rules.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { homedir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import type { ParseError } from 'jsonc-parser'
import { Fault } from '../fault.ts'
import { Secret } from '../log.ts'

export type Place = {
  home: string
  config: { address: string }
  admin_token: Secret | undefined
}

export const defaultAddress = '127.0.0.1:8080'

export function parseAddress(address: string): { host: string; port: number } {
  const match = /^(?:\[([^\]]+)\]|([^:\s]+)):(\d{1,5})$/.exec(address)
  const port = Number(match?.[3])
  if (!match || port > 65_535)
    throw new Fault('invalid', `address "${address}" is not host:port`, {
      hint: 'use an address such as 127.0.0.1:8080 or [::1]:8080',
    })
  return { host: (match[1] ?? match[2])!, port }
}

export function homeOf(env: NodeJS.ProcessEnv, checkout: string | undefined): string {
  if (env.OUBLIETTE_HOME) return resolve(env.OUBLIETTE_HOME)
  return checkout ? join(checkout, '.oubliette') : join(homedir(), '.oubliette')
}

export const configFileOf = (home: string): string => join(home, 'oubliette.jsonc')

/** The text of the config file; empty if there is none. */
export function readConfigFile(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code
    if (code === 'ENOENT') return ''
    if (code === 'ENOTDIR')
      throw new Fault('invalid', `OUBLIETTE_HOME ${dirname(file)} is not a directory`, {
        hint: 'set OUBLIETTE_HOME to a directory that this user can create or write to',
        cause: error,
      })
    throw new Fault('unavailable', `cannot read ${file}: ${(error as Error).message}`, { cause: error })
  }
}

/** The value in a config file, not validated. An empty file is an empty object. */
export function parseJsonc(text: string, file: string): unknown {
  if (text.trim() === '') return {}
  try {
    return JSON.parse(text)
  } catch {
    // Comments or trailing commas. The parser for them is loaded only for files that have them.
    const { parse, printParseErrorCode } = createRequire(import.meta.url)(
      'jsonc-parser',
    ) as typeof import('jsonc-parser')
    const errors: ParseError[] = []
    const value: unknown = parse(text, errors, { allowTrailingComma: true })
    const [first] = errors
    if (!first) return value
    const line = text.slice(0, first.offset).split('\n').length
    throw new Fault('invalid', `${file}:${line}: ${printParseErrorCode(first.error)}`)
  }
}

/** The address of the environment, or else the given one; throws if it is not host:port. */
export function addressOf(env: NodeJS.ProcessEnv, configured: string): string {
  const address = env.OUBLIETTE_ADDRESS || configured
  parseAddress(address)
  return address
}

export function adminTokenOf(env: NodeJS.ProcessEnv): Secret | undefined {
  const given = env.OUBLIETTE_ADMIN_TOKEN
  if (!given) return undefined
  if (!/^oub_[0-9a-f]{64}$/.test(given))
    throw new Fault(
      'invalid',
      'OUBLIETTE_ADMIN_TOKEN is not "oub_" followed by 64 lowercase hexadecimal digits',
    )
  return new Secret(given)
}

/** `checkout` is the root of the source tree, if the program runs from one. */
export function loadPlace(env: NodeJS.ProcessEnv, checkout: string | undefined): Place {
  const home = homeOf(env, checkout)
  const file = configFileOf(home)
  const config = parseJsonc(readConfigFile(file), file)
  const given =
    typeof config === 'object' && config !== null && 'address' in config ? config.address : undefined
  if (given !== undefined && typeof given !== 'string')
    throw new Fault('invalid', `${file}: address: expected a string`, {
      hint: 'see docs/configuration.md for all keys',
    })
  return {
    home,
    config: { address: addressOf(env, given ?? defaultAddress) },
    admin_token: adminTokenOf(env),
  }
}
