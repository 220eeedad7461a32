import { expect, it } from 'vitest'
import { parseServers, serverOfRegistry } from './mcp-servers.ts'

const only = (entry: unknown) => parseServers(JSON.stringify({ mcpServers: { one: entry } }), 'file')

it.each([
  [
    { command: 'npx', args: ['x'] },
    { transport: 'stdio', enabled: true },
  ],
  [{ url: 'https://x.example.com/mcp' }, { transport: 'http' }],
  [{ type: 'streamable-http', url: 'https://x.example.com' }, { transport: 'http' }],
  [{ transport: 'sse', url: 'https://x.example.com' }, { transport: 'sse' }],
  [{ command: 'x', disabled: true }, { enabled: false }],
])('reads %j', (entry, expected) => {
  expect(only(entry).entries.get('one')).toMatchObject(expected)
})

it.each([
  [{ url: 'ftp://x' }, 'url'],
  [{ transport: 'stdio' }, 'command is missing'],
  [{ type: 'http' }, 'url is missing'],
  [{ type: 'pigeon', url: 'https://x.example.com' }, 'unknown transport'],
  [{ command: 'x', env: { 'bad name': 'x' } }, 'env'],
  [{ url: 'https://x.example.com', headers: { a: 'line\r\nbreak' } }, 'headers'],
  [null, 'object'],
])('refuses %j', (entry, reason) => {
  const { entries, problems } = only(entry)
  expect([...entries]).toEqual([])
  expect(problems).toEqual([expect.stringContaining(reason)])
})

it('accepts comments, and refuses what is no list of servers', () => {
  expect(parseServers('// mine\n{"mcpServers": {},}', 'file')).toEqual({ entries: new Map(), problems: [] })
  expect(() => parseServers('[]', 'file')).toThrow('has no object "mcpServers"')
})

it('starts packages of a registry with their arguments and values', () => {
  const { entries, problems } = serverOfRegistry({
    name: 'io.github.someone/time-server',
    packages: [
      { registryType: 'oci', identifier: 'image' },
      {
        registryType: 'pypi',
        identifier: 'time-server',
        version: '1.2.0',
        packageArguments: [
          { type: 'named', name: '--zone', default: 'UTC' },
          { type: 'positional', value: 'serve' },
        ],
        environmentVariables: [{ name: 'LEVEL', default: 'info' }, { name: 'OPTIONAL' }],
      },
    ],
  })
  expect(problems).toEqual([])
  expect(entries.get('time-server')).toMatchObject({
    transport: 'stdio',
    command: 'uvx',
    args: ['time-server==1.2.0', '--zone', 'UTC', 'serve'],
    env: { LEVEL: 'info' },
    enabled: true,
  })
})

it('refuses a document of the registry that has nothing to start', () => {
  expect(() => serverOfRegistry({ name: 'x', packages: [] })).toThrow('has no remote')
  expect(() => serverOfRegistry({ packages: [] })).toThrow('not a server.json')
})
