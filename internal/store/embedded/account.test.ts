import { expect, test } from 'vitest'
import { accountIn } from './account.ts'

const nobody = 'nobody:x:65534:65533:nobody:/nonexistent:/usr/sbin/nologin'
const postgres = 'postgres:x:101:104::/var/lib/postgresql:/bin/bash'

test('prefers the dedicated account, then the one of the distribution, then nobody', () => {
  expect(accountIn(`${nobody}\n${postgres}\n`)).toEqual({ uid: 101, gid: 104 })
  expect(accountIn(`${nobody}\n${postgres}\noubliette:x:7:8::/:/bin/false\n`)).toEqual({ uid: 7, gid: 8 })
  expect(accountIn(nobody)).toEqual({ uid: 65534, gid: 65533 })
})

test('does not use an account with uid 0', () => {
  expect(accountIn('postgres:x:0:0::/root:/bin/bash\n')).toBeUndefined()
  expect(accountIn('')).toBeUndefined()
})
