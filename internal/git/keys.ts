// Keys for git commands that do not belong to a session: the clone that the server runs, and commands of `container exec`. A key
// is valid in one container, for the services it was issued for, until it is disposed. It is in memory only and ends with the
// process that waits for the command.
import { createHash, randomBytes } from 'node:crypto'
import type { Service } from './remote.ts'

export type GitKeys = ReturnType<typeof createGitKeys>
export type IssuedKey = { readonly key: string } & Disposable

const pattern = /^oubg_[0-9a-f]{64}$/
const hashOf = (key: string) => createHash('sha256').update(key).digest('hex')

export function createGitKeys(onDispose: (holder: string) => void) {
  const issued = new Map<string, { project_id: string; holder: string; allowed: readonly Service[] }>()
  return {
    issue(project_id: string, allowed: readonly Service[]): IssuedKey {
      const key = `oubg_${randomBytes(32).toString('hex')}`
      const hash = hashOf(key)
      issued.set(hash, { project_id, holder: hash, allowed })
      return {
        key,
        [Symbol.dispose]() {
          issued.delete(hash)
          onDispose(hash)
        },
      }
    },
    /** Undefined if the key is not a valid key of this container. */
    find(project_id: string, key: string): { holder: string; allowed: readonly Service[] } | undefined {
      const found = pattern.test(key) ? issued.get(hashOf(key)) : undefined
      return found?.project_id === project_id ? found : undefined
    },
  }
}
