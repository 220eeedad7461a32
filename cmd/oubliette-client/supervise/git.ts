// How git in this container finds the remote of its project: through the server, by the same listener as the models. Git is
// told by its environment only. The remote keeps its own address in the repository's config, and no key is on disk or in argv.
import type { Environment } from '../environment.ts'

/** The environment with our settings appended to what it tells git already. */
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
    // Loopback is not reached through the company's proxy.
    [`http.${proxy}.proxy`, ''],
  ]
  const before = Number(env.GIT_CONFIG_COUNT) || 0
  const told = settings.flatMap(([name, value], at) => [
    [`GIT_CONFIG_KEY_${before + at}`, name],
    [`GIT_CONFIG_VALUE_${before + at}`, value],
  ])
  return { ...env, ...Object.fromEntries(told), GIT_CONFIG_COUNT: String(before + settings.length) }
}
