// Which credential a project uses for a provider: the one it names, else the only one there is. Pure.

import { type Credential, requireSet } from '../../config/models.ts'
import { Fault } from '../../fault.ts'
import { credentialVariables } from '../../model-providers.ts'
import type { ProviderName } from './providers.ts'

export type Credentials = ReadonlyMap<string, Credential>

/** The first configured credential for one of these providers whose environment variable is not set. */
export const unsetCredential = (credentials: Credentials, wanted: readonly ProviderName[]) =>
  [...credentials].find(
    ([, { provider, unset }]) => unset !== undefined && (wanted as readonly string[]).includes(provider),
  )

/** How to add a credential for a provider. */
export function remedy(provider: ProviderName): string {
  const entry = `add credentials.<name> with provider "${provider}" to oubliette.jsonc`
  const variable = credentialVariables[provider]
  return variable ? `set ${variable} in the environment of the server, or ${entry}` : entry
}

/** Undefined if there is none; throws if it is not clear which. */
export function findCredential(
  credentials: Credentials,
  refs: readonly string[],
  provider: ProviderName,
): Credential | undefined {
  const named = refs.find((ref) => credentials.get(ref)?.provider === provider)
  if (named !== undefined) return requireSet(named, credentials.get(named)!)
  const all = [...credentials].filter(([, it]) => it.provider === provider && it.unset === undefined)
  if (all.length > 1)
    throw new Fault(
      'invalid',
      `several credentials exist for ${provider}, and the project references none of them: ${all.map(([name]) => name).join(', ')}`,
      {
        hint: 'set credential_refs with project update',
      },
    )
  return all[0]?.[1]
}

export function requireCredential(
  credentials: Credentials,
  refs: readonly string[],
  provider: ProviderName,
): Credential {
  const found = findCredential(credentials, refs, provider)
  if (found) return found
  throw new Fault('unavailable', `the server has no credential for ${provider}`, {
    hint: remedy(provider),
  })
}

/** The first of several providers that there is a credential for. */
export function chooseProvider(
  credentials: Credentials,
  refs: readonly string[],
  wanted: readonly ProviderName[],
): ProviderName | undefined {
  // What a project names goes before what happens to be there.
  const named = wanted.find((name) => refs.some((ref) => credentials.get(ref)?.provider === name))
  if (named !== undefined) findCredential(credentials, refs, named)
  return named ?? wanted.find((name) => findCredential(credentials, refs, name) !== undefined)
}
