// Who the processes in containers are, and whether the `user` of `container exec` means that user. Nothing else is
// accepted there: on bind mounts every uid and gid is one of the host, so a second user or a group of the image would be
// a user or group of the host. The answer only decides between running and refusing; the command runs as the container's
// uid and gid in any case, so what the container says about its names gains it nothing.
import { Fault } from '../../fault.ts'
import type { ExecRequest } from '../../protocol/messages.ts'

export type Owner = { uid: number; gid: number }

/** `self` is the server's own user. Without root it cannot give files to another one, so containers run as itself. */
export function containerUser(container_uid: number | undefined, self: Owner): Owner {
  if (self.uid === 0) {
    const uid = container_uid ?? 1000
    return { uid, gid: uid }
  }
  if (container_uid !== undefined && container_uid !== self.uid)
    throw new Fault(
      'invalid',
      `container_uid ${container_uid} needs a server that runs as root, and this one runs as uid ${self.uid}`,
      { hint: 'remove container_uid from the config' },
    )
  if (self.gid === 0)
    throw new Fault(
      'invalid',
      `the primary group of uid ${self.uid} is root's, which containers cannot have`,
      {
        hint: 'give the user a primary group of its own (usermod --gid)',
      },
    )
  return self
}

/**
 * What stands in for the `/etc/group` of an image that is not ours. OCI runtimes look up the number of the container's
 * group there as a name too (runc before 1.2): an image with a group named "1000" whose gid is 6 would get the group of
 * the host's disks, and an image whose file a droid can write would get any.
 */
export const groupsOf = ({ gid }: Owner): string => `root:x:0:\ndroid:x:${gid}:\n`

const numeric = /^\d+$/
const separator = '--'

/** By numbers alone, as most callers write it. */
export function isOwnUser(user: string, { uid, gid }: Owner): boolean {
  return user === String(uid) || user === `${uid}:${gid}`
}

const partsOf = (user: string): [string, string | undefined] => {
  const colon = user.indexOf(':')
  return colon === -1 ? [user, undefined] : [user.slice(0, colon), user.slice(colon + 1)]
}

/** False when a number in it is not the container's own, so that the container need not be asked. */
export function mayBeOwnName(user: string, { uid, gid }: Owner): boolean {
  const [name, group] = partsOf(user)
  if (name === 'root' || group === 'root') return false
  return (
    (!numeric.test(name) || name === String(uid)) &&
    (group === undefined || !numeric.test(group) || group === String(gid))
  )
}

/** What `isOwnName` reads: the image's accounts, then its groups. */
export const accountsRequest: ExecRequest = {
  command: ['/bin/sh', '-c', `cat /etc/passwd; echo; echo ${separator}; cat /etc/group`],
  timeout_seconds: 10,
  output_bytes: 1024 * 1024,
}

export function isOwnName(user: string, { uid, gid }: Owner, accounts: string): boolean {
  const [name, group] = partsOf(user)
  const lines = accounts.split('\n').map((line) => line.split(':'))
  const border = lines.findIndex(([first]) => first === separator)
  const account = lines.slice(0, border).find((fields) => fields[0] === name)
  const named =
    name === String(uid) ||
    (account?.[2] === String(uid) && (group !== undefined || account[3] === String(gid)))
  const grouped =
    group === undefined ||
    group === String(gid) ||
    lines.slice(border + 1).find((fields) => fields[0] === group)?.[2] === String(gid)
  return named && grouped
}

export const foreignUser = (user: string, { uid, gid }: Owner): Fault =>
  new Fault(
    'forbidden',
    `user "${user}" is not the user of the container: commands run as ${uid}:${gid} only`,
    {
      hint: 'leave user out',
    },
  )
