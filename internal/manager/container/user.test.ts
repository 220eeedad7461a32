import { describe, expect, it } from 'vitest'
import { containerUser, isOwnName, isOwnUser, mayBeOwnName } from './user.ts'

const owner = { uid: 1000, gid: 1000 }
const accounts = `root:x:0:0:root:/root:/bin/bash
droid:x:1000:1000::/home/droid:/bin/bash
twin:x:1000:6::/home/droid:/bin/bash
other:x:1001:1000::/:/bin/sh

--
root:x:0:
disk:x:6:droid
droid:x:1000:
shadow:x:42:droid
`
const accepts = (user: string) =>
  isOwnUser(user, owner) || (mayBeOwnName(user, owner) && isOwnName(user, owner, accounts))

describe('the user of a command', () => {
  it.each(['1000', '1000:1000', 'droid', 'droid:droid', 'droid:1000', '1000:droid', 'twin:droid'])(
    'is the own one: %s',
    (user) => expect(accepts(user)).toBe(true),
  )

  it.each([
    ...['root', '0', '0:0', '1000:0', 'droid:root', 'root:droid'],
    ...['1001', '01000', '1000:01000', '1000:1001', '1001:1000', '1000:', 'droid:'],
    ...['1000:disk', 'droid:shadow', 'droid:6', 'other', 'other:droid', 'twin', 'nobody', ''],
    ...['droid:disk:droid', '--', 'disk'],
  ])('is another one: %s', (user) => expect(accepts(user)).toBe(false))

  it('is another one when the container tells nothing', () => {
    expect(isOwnName('droid', owner, '')).toBe(false)
    expect(isOwnName('droid:droid', owner, 'droid:x:1000:1000')).toBe(false)
  })
})

describe('the user of containers', () => {
  it('is 1000 or as configured under a server that is root', () => {
    expect(containerUser(undefined, { uid: 0, gid: 0 })).toEqual({ uid: 1000, gid: 1000 })
    expect(containerUser(2000, { uid: 0, gid: 0 })).toEqual({ uid: 2000, gid: 2000 })
  })

  it("is the server's own under any other, which could not give files to somebody else", () => {
    expect(containerUser(undefined, { uid: 998, gid: 997 })).toEqual({ uid: 998, gid: 997 })
    expect(containerUser(998, { uid: 998, gid: 997 })).toEqual({ uid: 998, gid: 997 })
    expect(() => containerUser(1000, { uid: 998, gid: 997 })).toThrow('container_uid')
  })

  it('never has the group of root', () => {
    expect(() => containerUser(undefined, { uid: 998, gid: 0 })).toThrow('group')
  })
})
