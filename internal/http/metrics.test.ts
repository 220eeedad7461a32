import type { IncomingMessage } from 'node:http'
import { expect, test } from 'vitest'
import { maySkipToken, routeOf } from './metrics.ts'

const request = (remoteAddress: string | undefined, headers: Record<string, string>) =>
  ({ socket: { remoteAddress }, headers }) as unknown as IncomingMessage

test.each([
  ['127.0.0.1', { host: '127.0.0.1:8080' }, true],
  ['127.0.0.1', { host: 'localhost' }, true],
  ['::1', { host: '[::1]:8080' }, true],
  ['::ffff:127.0.0.1', { host: 'localhost:8080' }, true],
  ['::ffff:10.0.0.1', { host: 'localhost:8080' }, false],
  ['172.17.0.2', { host: 'localhost:8080' }, false],
  ['127.0.0.1', { host: 'oubliette.example.com' }, false],
  ['127.0.0.1', { host: '127.0.0.1.example.com' }, false],
  ['127.0.0.1', { host: 'localhost', 'x-forwarded-for': '1.2.3.4' }, false],
  ['127.0.0.1', { host: 'localhost', forwarded: 'for=1.2.3.4' }, false],
  ['127.0.0.1', { host: 'localhost', via: '1.1 proxy' }, false],
  ['127.0.0.1', {}, false],
  [undefined, { host: 'localhost' }, false],
])('from %s with %j: no token needed is %s', (address, headers, expected) => {
  expect(maySkipToken(request(address, headers as Record<string, string>))).toBe(expected)
})

test.each([
  ['/mcp', '/mcp'],
  ['/sessions/gogol_1/events', '/sessions/:id/events'],
  ['/workspaces/x/archive', '/workspaces/:id/archive'],
  ['/sessions/a/b/events', 'other'],
  ['/anything/a/caller/chooses', 'other'],
  ['/metricsx', 'other'],
])('the route of %s is %s', (path, route) => {
  expect(routeOf(path)).toBe(route)
})
