// The values that a caller can choose from when it creates a project. Credentials by name only.
import type { Config, Credential } from '../../config/load.ts'
import type { ModelProvider } from '../../model-providers.ts'
import { remedy } from '../../models/providers/credentials.ts'
import type { Runtime } from '../../runtime/runtime.ts'

type Credentials = ReadonlyMap<string, Credential>

export function createOptions(deps: { config: Config; credentials: Credentials; runtime: Runtime }) {
  const { config, credentials, runtime } = deps
  const usable = [...credentials].filter(([, { unset }]) => unset === undefined)
  /** Whether a key for one of these providers exists; `missing` has the hint that a spawn would give. */
  function needsOf(wanted: readonly ModelProvider[]) {
    const has = wanted.filter((name) => usable.some(([, { provider }]) => provider === name))
    return {
      providers: [...wanted],
      ready: has.length > 0,
      ...(has.length > 0 ? {} : { missing: remedy(wanted[0]!) }),
    }
  }

  return async () => ({
    models: config.models,
    credentials: usable.map(([name, { provider }]) => ({ name, provider })),
    container_types: (await runtime.images()).map(({ type, built, size_bytes }) => ({
      type,
      built,
      size_bytes,
      is_default: type === config.default_container_type,
    })),
    droids: [
      { name: 'shell', kind: 'shell', is_default: config.default_droid === 'shell' },
      ...Object.entries(config.droids).map(([name, { kind, image, providers }]) => ({
        name,
        kind,
        is_default: name === config.default_droid,
        ...(image === undefined ? {} : { container_type: image }),
        ...(providers.length === 0 ? {} : { needs: needsOf(providers) }),
      })),
    ],
    networks: ['none', 'internal', 'open'],
    limits: config.limits,
    scopes: ['admin', 'admin:ro', 'project:<uuid>', 'project:<uuid>:ro'],
  })
}
