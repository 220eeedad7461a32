// Configures git in this container to reach the project's remote through the server, on the same listener as the model proxy.
// The configuration is in the environment only: the repository's config keeps the remote's own URL, and no key is on disk or
// in an argument.
import type { Environment } from '../environment.ts'

/** The environment with these settings appended to the GIT_CONFIG_* variables it already has. */
export function withGit(
  env: Record<string, string>,
  { models_url, remote_url }: Pick<Environment, 'models_url' | 'remote_url'>,
  key: string | undefined,
): Record<string, string> {
  if (remote_url === undefined || key === undefined) return env
  const proxy = `${models_url}/git/remote`
  const settings: [string, string][] = [
    [`url.${proxy}.insteadOf`, remote_url],
    [`http.${proxy}.extraHeader`, `Authorization: Bearer ${key}`],
    // Loopback must not go through an HTTP proxy of the network.
    [`http.${proxy}.proxy`, ''],
  ]
  const before = Number(env.GIT_CONFIG_COUNT) || 0
  const variables = settings.flatMap(([name, value], at) => [
    [`GIT_CONFIG_KEY_${before + at}`, name],
    [`GIT_CONFIG_VALUE_${before + at}`, value],
  ])
  return { ...env, ...Object.fromEntries(variables), GIT_CONFIG_COUNT: String(before + settings.length) }
}
