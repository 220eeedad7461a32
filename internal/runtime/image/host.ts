// Host settings that image builds use, as required in company networks: trusted certificates, proxies and the package registry.
import { readFile } from 'node:fs/promises'

const certificates = '/etc/ssl/certs/ca-certificates.crt'
const bundles = [
  certificates,
  '/etc/pki/tls/certs/ca-bundle.crt',
  '/etc/ssl/cert.pem',
  '/etc/ssl/ca-bundle.pem',
]

/** All certificates that this machine or this process trusts, as PEM; empty when there are none to be found. */
export async function hostCertificates(env: NodeJS.ProcessEnv = process.env): Promise<Buffer> {
  const named = [env.SSL_CERT_FILE, ...bundles]
  const system = await firstReadable(named)
  const extra = await firstReadable([env.NODE_EXTRA_CA_CERTS])
  if (!extra || system?.includes(extra)) return system ?? Buffer.alloc(0)
  return Buffer.concat([system ?? Buffer.alloc(0), Buffer.from('\n'), extra])
}

async function firstReadable(files: (string | undefined)[]): Promise<Buffer | undefined> {
  for (const file of files) {
    if (!file) continue
    try {
      return await readFile(file)
    } catch (error) {
      // Which of them exists depends on the distribution.
      const code = (error as NodeJS.ErrnoException).code
      if (code !== 'ENOENT' && code !== 'EACCES' && code !== 'EISDIR') throw error
    }
  }
  return undefined
}

/** Unlike the proxies', this argument stays in the image's history: an address with a password in it is not passed on. */
function hostRegistry(env: NodeJS.ProcessEnv): Record<string, string> {
  const value = env.NPM_CONFIG_REGISTRY ?? env.npm_config_registry
  const url = value ? URL.parse(value) : null
  return !url || url.username || url.password ? {} : { NPM_CONFIG_REGISTRY: url.href }
}

/** Build arguments; the proxies' are predefined ones, which the engine keeps out of the image's history. */
export function hostBuildArguments(env: NodeJS.ProcessEnv = process.env): Record<string, string> {
  const args: Record<string, string> = {
    SSL_CERT_FILE: certificates,
    NODE_EXTRA_CA_CERTS: certificates,
    CURL_CA_BUNDLE: certificates,
    ...hostRegistry(env),
  }
  for (const name of ['HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY']) {
    const value = env[name] ?? env[name.toLowerCase()]
    if (!value) continue
    args[name] = value
    args[name.toLowerCase()] = value
  }
  return args
}

/** A proxy on the host's loopback can only be reached by a build that shares the host's network. */
export function needsHostNetwork(env: NodeJS.ProcessEnv = process.env): boolean {
  return ['HTTP_PROXY', 'HTTPS_PROXY'].some((name) =>
    /\/\/(?:[^@/]*@)?(?:localhost|127\.|\[::1\])/.test(env[name] ?? env[name.toLowerCase()] ?? ''),
  )
}
