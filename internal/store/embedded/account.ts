// PostgreSQL refuses to run as root. A daemon that runs as root starts it under an unprivileged account; any other daemon
// starts it as its own user. Once data exists, its owner is used, so that an account that is added later changes nothing.
import { readFile, stat } from 'node:fs/promises'
import { Fault } from '../../fault.ts'

export type Account = { uid: number; gid: number }

/** A dedicated account first; the others exist on most systems. */
const candidates = ['oubliette', 'postgres', '_postgres', 'nobody']

async function ownerOf(directory: string): Promise<Account | undefined> {
  try {
    const { uid, gid } = await stat(directory)
    return { uid, gid }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

export function accountIn(passwd: string): Account | undefined {
  const lines = passwd.split('\n').map((line) => line.split(':'))
  for (const name of candidates) {
    const line = lines.find((fields) => fields[0] === name)
    const uid = Number(line?.[2])
    const gid = Number(line?.[3])
    if (line && uid > 0 && Number.isInteger(gid)) return { uid, gid }
  }
  return undefined
}

/** The account for the server in `directory`; undefined is the current user. */
export async function accountFor(directory: string): Promise<Account | undefined> {
  const owner = await ownerOf(directory)
  const self = process.getuid?.()
  if (self !== 0) {
    if (owner && owner.uid !== self)
      throw new Fault('unavailable', `${directory} belongs to another user (uid ${owner.uid})`, {
        hint: 'run Oubliette as that user, or set another OUBLIETTE_HOME',
      })
    return undefined
  }
  if (owner && owner.uid !== 0) return owner
  const account = accountIn(await readFile('/etc/passwd', 'utf8'))
  if (account) return account
  throw new Fault('unavailable', 'PostgreSQL cannot run as root, and no unprivileged account was found', {
    hint: 'add a system user named "oubliette", run Oubliette as another user, or set DATABASE_URL',
  })
}
