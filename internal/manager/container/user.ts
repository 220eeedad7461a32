// The user of processes in containers, and whether the `user` of `container exec` is that user. No other user is accepted: on
// bind mounts every uid and gid is one of the host, so a second user or a group of the image would be a user or group of the
// host. The check only decides between running and refusing; the command always runs as the container's uid and gid, so false
// account names in the container gain nothing.
import { Fault } from '../../fault.ts'
import type { ExecRequest } from '../../protocol/messages.ts'

export type Owner = { uid: number; gid: number }

/** `self` is the user of the server. Without root it cannot change owners of files, so containers run as the same user. */
export function containerUser(container_uid: number | undefined, self: Owner): Owner {
  if (self.uid === 0) {
    const uid = container_uid ?? 1000
    return { uid, gid: uid }
  }
  if (container_uid !== undefined && container_uid !== self.uid)
    throw new Fault(
      'invalid',
      `container_uid ${container_uid} requires a server that runs as root; this one runs as uid ${self.uid}`,
      { hint: 'remove container_uid from the config' },
    )
  if (self.gid === 0)
    throw new Fault('invalid', `the primary group of uid ${self.uid} is root, which containers cannot use`, {
      hint: 'give the user a primary group of its own (usermod --gid)',
    })
  return self
}

/**
 * Replaces the `/etc/group` of images that are not ours. OCI runtimes also look up the gid of the container there as a name
 * (runc before 1.2): an image with a group named "1000" whose gid is 6 would get the disk group of the host, and an image
 * whose file a droid can write would get any group.
 */
export const groupsOf = ({ gid }: Owner): string => `root:x:0:\ndroid:x:${gid}:\n`

const numeric = /^\d+$/
const separator = '--'

/** Numeric, as most callers write it. */
export function isOwnUser(user: string, { uid, gid }: Owner): boolean {
  return user === String(uid) || user === `${uid}:${gid}`
}

const partsOf = (user: string): [string, string | undefined] => {
  const colon = user.indexOf(':')
  return colon === -1 ? [user, undefined] : [user.slice(0, colon), user.slice(colon + 1)]
}

/** False if a number in it is not the container's own: then the accounts of the container need not be read. */
export function mayBeOwnName(user: string, { uid, gid }: Owner): boolean {
  const [name, group] = partsOf(user)
  if (name === 'root' || group === 'root') return false
  return (
    (!numeric.test(name) || name === String(uid)) &&
    (group === undefined || !numeric.test(group) || group === String(gid))
  )
}

/** Input of `isOwnName`: the accounts of the image, then its groups. */
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
      hint: 'omit user',
    },
  )
