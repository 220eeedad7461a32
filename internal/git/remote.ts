// Which requests the proxy accepts for a project's remote, and which credential it uses. Pure. Requests are matched without
// decoding against a fixed list: no byte of the path that a container sends reaches the remote.
import { type Credential, requireSet } from '../config/models.ts'

export type Service = 'git-upload-pack' | 'git-receive-pack'
export const services: readonly Service[] = ['git-upload-pack', 'git-receive-pack']

/** `suffix` is what is appended to the path of the remote. */
export type Route = {
  service: Service
  method: 'GET' | 'POST'
  suffix: string
  search: string
  answer: string
}

const routes = new Map<string, Route>()
// Git clients append `.git` or not; both name the same remote here.
for (const base of ['/git/remote', '/git/remote.git'])
  for (const service of services) {
    const search = `?service=${service}`
    routes.set(`GET ${base}/info/refs${search}`, {
      service,
      method: 'GET',
      suffix: '/info/refs',
      search,
      answer: `application/x-${service}-advertisement`,
    })
    routes.set(`POST ${base}/${service}`, {
      service,
      method: 'POST',
      suffix: `/${service}`,
      search: '',
      answer: `application/x-${service}-result`,
    })
  }

export const routeOf = (method: string | undefined, target: string | undefined): Route | undefined =>
  routes.get(`${method} ${target}`)

/** Other remotes (ssh, git) do not use HTTP: containers reach them over their own network, without a credential. */
export const isProxied = (remote_url: string): boolean => /^https?:\/\//.test(remote_url)

/** The first git credential that a project references. There is no default, so that a credential is used only where an administrator assigned it. */
export const gitCredential = (
  credentials: ReadonlyMap<string, Credential>,
  refs: readonly string[],
): Credential | undefined => {
  const name = refs.find((ref) => credentials.get(ref)?.provider === 'git')
  return name === undefined ? undefined : requireSet(name, credentials.get(name)!)
}

const base64 = (text: string) => Buffer.from(text).toString('base64')
const login = ({ username, key }: Credential) => base64(`${username ?? 'x-access-token'}:${key.reveal()}`)

export const authorization = (credential: Credential): string => `Basic ${login(credential)}`

/** Encodings in which a remote could echo the credential. */
export function secretForms(credential: Credential | undefined): string[] {
  if (!credential) return []
  const key = credential.key.reveal()
  return [...new Set([key, login(credential), encodeURIComponent(key), base64(key)])]
}

/** The base URL of a remote's requests: its path without trailing slashes. */
export function baseOf(remote_url: string): URL {
  const base = new URL(remote_url)
  base.pathname = base.pathname.replace(/\/+$/, '')
  base.search = ''
  base.hash = ''
  return base
}

export function targetOf(base: URL, route: Route): URL {
  const target = new URL(base)
  target.pathname = `${base.pathname.replace(/\/+$/, '')}${route.suffix}`
  target.search = route.search
  return target
}

/** The base URL after a redirect of `info/refs`; undefined if it leaves the remote's origin or protocol. */
export function movedBase(from: URL, location: string, route: Route): URL | undefined {
  const to = URL.parse(location, from.href)
  if (!to || to.origin !== from.origin || to.username || to.password) return undefined
  if (to.search !== route.search || !to.pathname.endsWith(route.suffix)) return undefined
  to.pathname = to.pathname.slice(0, -route.suffix.length)
  to.search = ''
  to.hash = ''
  return to
}
