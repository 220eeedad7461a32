import { expect, test } from 'vitest'
import { Secret } from '../log.ts'
import { authorization, baseOf, gitCredential, movedBase, routeOf, secretForms, targetOf } from './remote.ts'

const refs = routeOf('GET', '/git/remote/info/refs?service=git-upload-pack')!

test('the four requests of git are known, with and without .git', () => {
  for (const base of ['/git/remote', '/git/remote.git'])
    for (const service of ['git-upload-pack', 'git-receive-pack']) {
      expect(routeOf('GET', `${base}/info/refs?service=${service}`)).toMatchObject({ service })
      expect(routeOf('POST', `${base}/${service}`)).toMatchObject({ service })
    }
})

test.each([
  ['GET', '/git/remote/../other.git/info/refs?service=git-upload-pack'],
  ['GET', '/git/../other.git/info/refs?service=git-upload-pack'],
  ['GET', '/git/remote/%2e%2e/other.git/info/refs?service=git-upload-pack'],
  ['GET', '/git//remote/info/refs?service=git-upload-pack'],
  ['GET', '/git/remote//info/refs?service=git-upload-pack'],
  ['GET', '/git/other/info/refs?service=git-upload-pack'],
  ['GET', 'http://127.0.0.1/git/remote/info/refs?service=git-upload-pack'],
  ['GET', '/git/remote/info/refs?service=git-upload-archive'],
  ['GET', '/git/remote/info/refs?service=git-upload-pack&x=1'],
  ['GET', '/git/remote/info/refs?service=git%2dupload-pack'],
  ['GET', '/git/remote/info/refs'],
  ['GET', '/git/remote/HEAD'],
  ['HEAD', '/git/remote/info/refs?service=git-upload-pack'],
  ['GET', '/git/remote/git-upload-pack'],
  ['POST', '/git/remote/git-upload-archive'],
  ['POST', '/git/remote/info/lfs/objects/batch'],
  ['POST', '/git/remote/git-upload-pack?x'],
])('%s %s is not', (method, target) => {
  expect(routeOf(method, target)).toBeUndefined()
})

test.each([
  ['https://git.example/a/b.git', 'https://git.example/a/b.git/info/refs?service=git-upload-pack'],
  ['https://git.example/a/b/', 'https://git.example/a/b/info/refs?service=git-upload-pack'],
  ['http://git.example:8443', 'http://git.example:8443/info/refs?service=git-upload-pack'],
])('the request for %s goes to %s', (remote_url, target) => {
  expect(targetOf(baseOf(remote_url), refs).href).toBe(target)
})

test.each([
  ['/a/c.git/info/refs?service=git-upload-pack', 'https://git.example/a/c.git'],
  ['https://git.example/x/info/refs?service=git-upload-pack', 'https://git.example/x'],
  ['https://evil.example/a/b.git/info/refs?service=git-upload-pack', undefined],
  ['http://git.example/a/b.git/info/refs?service=git-upload-pack', undefined],
  ['https://git.example:444/a/b.git/info/refs?service=git-upload-pack', undefined],
  ['//evil.example/a/b.git/info/refs?service=git-upload-pack', undefined],
  ['https://user@git.example/a/b.git/info/refs?service=git-upload-pack', undefined],
  ['/login?service=git-upload-pack', undefined],
  ['/a/c.git/info/refs?service=git-receive-pack', undefined],
  ['http://[', undefined],
])('a redirect to %s leads to %s', (location, base) => {
  const from = targetOf(baseOf('https://git.example/a/b.git'), refs)
  expect(movedBase(from, location, refs)?.href).toBe(base)
})

test('a credential is used only where it is named', () => {
  const git = { provider: 'git', key: new Secret('k'.repeat(20)) }
  const credentials = new Map([
    ['model', { provider: 'openai', key: new Secret('m') }],
    ['forge', git],
  ])
  expect(gitCredential(credentials, [])).toBeUndefined()
  expect(gitCredential(credentials, ['model'])).toBeUndefined()
  expect(gitCredential(credentials, ['gone', 'model', 'forge'])).toBe(git)
  const sent = authorization(git)
  expect(Buffer.from(sent.slice('Basic '.length), 'base64').toString()).toBe(
    `x-access-token:${'k'.repeat(20)}`,
  )
  expect(secretForms(git).some((form) => sent.includes(form))).toBe(true)
  expect(secretForms(undefined)).toEqual([])
})
