import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { loadSettings, parseConfig } from './load.ts'
import { loadPlace, parseAddress } from './place.ts'

const home = mkdtempSync(join(tmpdir(), 'oubliette-config-'))
afterAll(() => rmSync(home, { recursive: true }))

test('an empty file yields the defaults; comments and trailing commas are accepted', () => {
  expect(parseConfig('', 'f').address).toBe('127.0.0.1:8080')
  expect(parseConfig('// hi\n{"log": {"level": "debug",},}', 'f').log.level).toBe('debug')
})

test('an unknown key is reported with its path, at any depth', () => {
  expect(() => parseConfig('{"adress": "x"}', 'f')).toThrow('f: unknown key "adress"')
  expect(() => parseConfig('{"log": {"levl": "x"}}', 'f')).toThrow('f: unknown key "log.levl"')
  expect(() => parseConfig('{"limits": {"pids": 1}}', 'f')).toThrow(/limits\.pids/)
})

test('invalid JSON is reported with its line', () => {
  expect(() => parseConfig('{\n"a": }', 'f')).toThrow(/^f:2: /)
})

test.each(['8080', 'host', 'host:99999', ':80', 'a b:80'])('"%s" is refused as an address', (address) => {
  expect(() => parseAddress(address)).toThrow(/is not host:port/)
})

test('a credential is read from the environment, and gives a warning when its variable is not set', () => {
  const variable = (name: string) => `$\{env:${name}}`
  const credentials = {
    git: { provider: 'git', key: variable('GIT_KEY') },
    none: { provider: 'git', key: variable('NOT_SET') },
  }
  writeFileSync(join(home, 'oubliette.jsonc'), JSON.stringify({ credentials }))
  const settings = loadSettings({ OUBLIETTE_HOME: home, GIT_KEY: 'hush' }, undefined)
  expect([...settings.credentials].map(([name, { unset }]) => [name, unset])).toEqual([
    ['git', undefined],
    ['none', 'NOT_SET'],
  ])
  expect(settings.warnings).toEqual([expect.stringMatching(/credential "none" is not available.*NOT_SET/)])
  expect(settings.credentials.get('git')?.key.reveal()).toBe('hush')
  expect(JSON.stringify([...settings.credentials])).not.toContain('hush')
  expect(JSON.stringify(settings.config)).not.toContain('GIT_KEY')
})

test('what cannot work is an error that names its key', () => {
  const load = (config: object) => {
    writeFileSync(join(home, 'oubliette.jsonc'), JSON.stringify(config), { mode: 0o600 })
    return () => loadSettings({ OUBLIETTE_HOME: home, SET: 'x' }, undefined)
  }
  const provider = { credentials: { mine: { provider: 'antropic', key: 'k' } } }
  expect(load(provider)).toThrow(/oubliette\.jsonc: credentials\.mine\.provider: .*"anthropic"/)
  const droid = { droids: { mine: { kind: 'acp', command: 'x', providers: ['nobody'] } } }
  expect(load(droid)).toThrow(/droids\.mine\.providers\.0: /)
  expect(load({ default_droid: 'nobody' })).toThrow(/default_droid: no droid "nobody"/)
  const part = { credentials: { mine: { provider: 'git', key: 'Bearer ${env:SET}' } } }
  expect(load(part)).toThrow(/credentials\.mine\.key cannot be read from the environment/)
  const elsewhere = { droids: { mine: { kind: 'acp', command: 'x', env: { KEY: '${env:SET}' } } } }
  expect(load(elsewhere)).toThrow(/droids\.mine\.env\.KEY cannot be read/)
  expect(load({ credentials: { mine: { provider: 'git', key: '${env:SET}' } } })).not.toThrow()
})

test('an admin token of the wrong format is refused without being printed', () => {
  expect(() => loadSettings({ OUBLIETTE_HOME: home, OUBLIETTE_ADMIN_TOKEN: 'oub_hush' }, undefined)).toThrow(
    /^OUBLIETTE_ADMIN_TOKEN is not (?!.*hush)/,
  )
})

test('DATABASE_URL overrides database_url', () => {
  const url = (text: string | undefined) => {
    writeFileSync(join(home, 'oubliette.jsonc'), JSON.stringify({ database_url: 'postgresql://config' }), {
      mode: 0o600,
    })
    const settings = loadSettings(
      { OUBLIETTE_HOME: home, ...(text ? { DATABASE_URL: text } : {}) },
      undefined,
    )
    expect(JSON.stringify(settings)).not.toContain('postgresql:')
    return settings.database_url?.reveal()
  }
  expect(url(undefined)).toBe('postgresql://config')
  expect(url('postgresql://environment')).toBe('postgresql://environment')
})

test('commands read the same home, address and admin token as the server', () => {
  const admin = `oub_${'0'.repeat(64)}`
  const environments = [{}, { OUBLIETTE_ADDRESS: '[::1]:9' }, { OUBLIETTE_ADMIN_TOKEN: admin }]
  const files = ['', '{"address": "0.0.0.0:1"}', '// hi\n{"address": "host:2", "log": {"level": "warn",},}']
  for (const text of files)
    for (const more of environments) {
      writeFileSync(join(home, 'oubliette.jsonc'), text)
      const env = { OUBLIETTE_HOME: home, ...more }
      const { home: where, config, admin_token } = loadSettings(env, undefined)
      const place = loadPlace(env, undefined)
      expect(place).toEqual({ home: where, config: { address: config.address }, admin_token })
      expect(place.admin_token?.reveal()).toBe(admin_token?.reveal())
    }
  writeFileSync(join(home, 'oubliette.jsonc'), '{"address": 5}')
  expect(() => loadPlace({ OUBLIETTE_HOME: home }, undefined)).toThrow(/oubliette\.jsonc: address/)
})
