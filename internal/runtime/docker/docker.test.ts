import { describe, expect, it } from 'vitest'
import { parseDockerHost } from './docker.ts'

describe("the engine's address", () => {
  it.each([
    [undefined, 'unix:///var/run/docker.sock'],
    ['unix://', 'unix:///var/run/docker.sock'],
    ['unix:///run/user/1000/docker.sock', 'unix:///run/user/1000/docker.sock'],
    ['tcp://10.0.0.5:2375', 'tcp://10.0.0.5:2375'],
  ])('%s is %s', (given, address) => expect(parseDockerHost(given, {}).address).toBe(address))

  it('leaves nothing to be filled from the environment by the client library', () => {
    expect(parseDockerHost('unix:///x.sock', {}).options).toEqual({ socketPath: '/x.sock', host: undefined })
    expect(parseDockerHost('tcp://engine', { DOCKER_TLS_VERIFY: '1' }).options).toMatchObject({
      socketPath: undefined,
      host: 'engine',
      port: 2376,
      protocol: 'https',
    })
  })

  it.each(['nonsense', 'ftp://x', 'tcp://'])('refuses %s', (given) =>
    expect(() => parseDockerHost(given, {})).toThrow('DOCKER_HOST'),
  )
})
