import { describe, expect, it } from 'vitest'
import { hostBuildArguments, needsHostNetwork } from './host.ts'

describe('what a build takes from the host', () => {
  it('is its proxies in both spellings, whichever of them is set', () => {
    const args = hostBuildArguments({ http_proxy: 'http://proxy.example:3128', NO_PROXY: 'localhost' })
    expect(args).toMatchObject({
      HTTP_PROXY: 'http://proxy.example:3128',
      http_proxy: 'http://proxy.example:3128',
      NO_PROXY: 'localhost',
      no_proxy: 'localhost',
    })
    expect(args).not.toHaveProperty('HTTPS_PROXY')
  })

  it('is its package registry, unless a password is part of the address', () => {
    const passed = (value: string) => hostBuildArguments({ npm_config_registry: value }).NPM_CONFIG_REGISTRY
    expect(passed('https://packages.example/npm/')).toBe('https://packages.example/npm/')
    expect(passed('https://user:word@packages.example/npm/')).toBeUndefined()
    expect(passed('nonsense')).toBeUndefined()
    expect(hostBuildArguments({})).not.toHaveProperty('NPM_CONFIG_REGISTRY')
  })

  it('is its network too when the proxy listens on its loopback only', () => {
    expect(needsHostNetwork({ https_proxy: 'http://user:word@127.0.0.1:3128' })).toBe(true)
    expect(needsHostNetwork({ https_proxy: 'http://proxy.example:3128' })).toBe(false)
    expect(needsHostNetwork({})).toBe(false)
  })
})
