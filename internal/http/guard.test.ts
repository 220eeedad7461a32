import { describe, expect, test } from 'vitest'
import { createGuard } from './guard.ts'

const config = { address: '127.0.0.1:8080', allowed_hosts: [] as string[], allowed_origins: [] as string[] }
const passes = (
  guard: ReturnType<typeof createGuard>,
  host: string | undefined,
  origin?: string,
  local?: string,
) => {
  try {
    guard({ host, origin }, local)
    return true
  } catch {
    return false
  }
}

describe('Host', () => {
  const guard = createGuard({
    ...config,
    address: '10.1.2.3:8080',
    allowed_hosts: ['Oub.Example', 'other.example:8443'],
  })
  test.each([
    'localhost',
    'LOCALHOST:1',
    '127.0.0.1:9',
    '[::1]:8080',
    '10.1.2.3',
    'oub.example:443',
    'other.example:8443',
  ])('%s is ours', (host) => expect(passes(guard, host)).toBe(true))
  test.each([
    undefined,
    '',
    'evil.example',
    'localhost.evil.example',
    'evil.example#localhost',
    'localhost@evil.example',
    'evil.example/localhost',
    'localhost.',
    '10.1.2.4',
    'other.example',
    '[::2]',
  ])('%s is not', (host) => expect(passes(guard, host)).toBe(false))

  test('bound everywhere, only the address that was dialled is ours', () => {
    for (const address of ['0.0.0.0:80', '[::]:80']) {
      const everywhere = createGuard({ ...config, address })
      expect(passes(everywhere, '192.168.1.5:80', undefined, '::ffff:192.168.1.5')).toBe(true)
      expect(passes(everywhere, '[fd00::1]', undefined, 'fd00::1')).toBe(true)
      expect(passes(everywhere, '192.168.1.6', undefined, '192.168.1.5')).toBe(false)
      expect(passes(everywhere, 'evil.example', undefined, '192.168.1.5')).toBe(false)
    }
    expect(passes(createGuard(config), '192.168.1.5', undefined, '192.168.1.5')).toBe(false)
  })
})

test('Origin is ours, allowed, or refused', () => {
  const guard = createGuard({ ...config, allowed_origins: ['https://app.example'] })
  for (const origin of [undefined, 'http://localhost:8080', 'https://localhost:8080', 'https://app.example'])
    expect(passes(guard, 'localhost:8080', origin)).toBe(true)
  for (const origin of [
    'null',
    'http://localhost:3000',
    'http://evil.example',
    'https://app.example.evil',
    '',
  ])
    expect(passes(guard, 'localhost:8080', origin)).toBe(false)
})
