// Values of `env` and `headers` of an upstream. A value with a reference is stored as it is and resolved when the upstream is
// connected; any other value is a secret, is stored encrypted, and is never shown.
import type { Encryption } from '../../../auth/encryption.ts'
import { Fault } from '../../../fault.ts'
import { Secret } from '../../../log.ts'
import type { UpstreamRow } from '../../../store/rows/upstream/upstreams.ts'

const reference = /\$\{(env|secret):([A-Za-z_][A-Za-z0-9_.-]*)\}/g
const anyReference = /\$\{(?:env|secret):/

type Values = Record<string, string>
export type Literals = { env?: Values; headers?: Values; client_secret?: string }
type Owner = Pick<UpstreamRow, 'project_id' | 'trusted'>

/** Environment variables that belong to this server, which no upstream needs. */
const own = /^(OUBLIETTE_|DATABASE_URL$)/

/** Throws if a value refers to something that its owner may not use. */
export function checkReferences({ project_id, trusted }: Owner, field: string, values: Values): void {
  for (const [name, text] of Object.entries(values)) {
    const found = [...text.matchAll(reference)]
    if (found.length === 0 && anyReference.test(text))
      throw new Fault('invalid', `${field}.${name}: the reference is malformed`, {
        hint: 'use ${env:NAME} or ${secret:name}',
      })
    for (const [, kind, target = ''] of found) {
      if (kind === 'env' && !trusted)
        throw new Fault('forbidden', `${field}.${name}: \${env:…} reads the environment of the server`, {
          hint: 'only an admin and mcp-servers.json can use it; give the value itself, which is stored encrypted',
        })
      if (kind === 'env' && own.test(target))
        throw new Fault('forbidden', `${field}.${name}: the variable ${target} belongs to the server itself`)
      if (kind === 'secret' && project_id === null)
        throw new Fault(
          'invalid',
          `${field}.${name}: a global server has no project whose secrets it could use`,
          {
            hint: 'use ${env:NAME}, or give the value itself, which is stored encrypted',
          },
        )
    }
  }
}

/** What is stored in the settings, and what is stored encrypted. */
export function splitValues(values: Values): { shown: Record<string, string | null>; literals: Values } {
  const isTemplate = (text: string) => anyReference.test(text)
  return {
    shown: Object.fromEntries(
      Object.entries(values).map(([name, text]) => [name, isTemplate(text) ? text : null]),
    ),
    literals: Object.fromEntries(Object.entries(values).filter(([, text]) => !isTemplate(text))),
  }
}

export const encryptLiterals = async (
  encryption: Encryption,
  upstream_id: string,
  literals: Literals,
): Promise<string | null> =>
  Object.values(literals).some((part) => typeof part === 'string' || Object.keys(part ?? {}).length > 0)
    ? await encryption.encrypt(`${upstream_id} secrets`, JSON.stringify(literals))
    : null

export const decryptLiterals = async (
  encryption: Encryption,
  { id, secrets }: Pick<UpstreamRow, 'id' | 'secrets'>,
): Promise<Literals> =>
  secrets === null ? {} : (JSON.parse(await encryption.decrypt(`${id} secrets`, secrets)) as Literals)

/** Secrets of projects by name; undefined if there is none. */
export type ProjectSecret = (project_id: string, name: string) => Promise<Secret | undefined>

export function createResolve(deps: { env: NodeJS.ProcessEnv; secretOf: ProjectSecret }) {
  async function target(owner: Owner, kind: string, name: string): Promise<string> {
    const value =
      kind === 'env'
        ? owner.trusted && !own.test(name)
          ? deps.env[name]
          : undefined
        : owner.project_id === null
          ? undefined
          : (await deps.secretOf(owner.project_id, name))?.reveal()
    if (value === undefined || value === '')
      throw new Fault('unavailable', `\${${kind}:${name}} is not set`, {
        hint: kind === 'env' ? 'set the variable and restart the server' : 'set the secret in the project',
      })
    return value
  }

  /** The values to connect with. Throws `unavailable` if a reference has no value. */
  return async (
    owner: Owner,
    shown: Record<string, string | null> | undefined,
    literals: Values | undefined,
  ): Promise<Record<string, Secret>> => {
    const resolved: Record<string, Secret> = {}
    for (const [name, template] of Object.entries(shown ?? {})) {
      if (template === null) {
        resolved[name] = new Secret(literals?.[name] ?? '')
        continue
      }
      let text = ''
      let at = 0
      for (const match of template.matchAll(reference)) {
        text += template.slice(at, match.index) + (await target(owner, match[1]!, match[2]!))
        at = match.index + match[0].length
      }
      resolved[name] = new Secret(text + template.slice(at))
    }
    return resolved
  }
}
