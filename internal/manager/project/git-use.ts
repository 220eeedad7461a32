// Access of git in containers to the remote of their project: sessions use their own key, commands that the server runs use a
// key that is revoked when they end.
import type { Credential } from '../../config/load.ts'
import { Fault } from '../../fault.ts'
import { createGitKeys, type GitKeys } from '../../git/keys.ts'
import { createGitProxy, type GitProxy } from '../../git/proxy.ts'
import { gitCredential, isProxied, services } from '../../git/remote.ts'
import type { Log } from '../../log.ts'
import { isFinal } from '../../protocol/session-status.ts'
import type { Store } from '../../store/open.ts'
import type { ContainerThrottle } from '../container/uplink.ts'
import type { Committed } from '../events/log-writer.ts'
import { requireProject } from './require.ts'

export type GitUse = Pick<GitProxy, 'accept' | 'close'> & {
  issue: GitKeys['issue']
  onCommit(committed: Committed): void
}

export function createGitUse(deps: {
  store: Store
  credentials: ReadonlyMap<string, Credential>
  log: Log
  identify: (project_id: string, key: string) => Promise<{ session_id: string }>
  throttle: ContainerThrottle
}): GitUse {
  const keys = createGitKeys((holder) => proxy.end(holder))
  const proxy = createGitProxy({
    log: deps.log,
    throttle: deps.throttle,
    async admit(project_id, key) {
      const issued = keys.find(project_id, key)
      if (issued) return issued
      const { session_id } = await deps.identify(project_id, key)
      return { holder: session_id, allowed: services }
    },
    async remote(project_id) {
      const { remote_url, credential_refs } = await requireProject(deps.store.db, project_id)
      return { remote_url, credential: gitCredential(deps.credentials, credential_refs) }
    },
  })
  return {
    accept: proxy.accept,
    close: proxy.close,
    issue: keys.issue,
    onCommit({ rows }) {
      for (const { id, status } of rows) if (isFinal(status)) proxy.end(id)
    },
  }
}

/** A git credential is only sent over HTTP. */
export function checkRemote(
  remote: { remote_url: string; network: string; credential_refs: readonly string[] },
  credentials: ReadonlyMap<string, Credential>,
): void {
  if (isProxied(remote.remote_url)) return
  if (gitCredential(credentials, remote.credential_refs))
    throw new Fault('invalid', 'a git credential cannot be used with an ssh or git remote', {
      hint: 'use the https address of the repository as remote_url',
    })
  if (remote.network !== 'open')
    throw new Fault('invalid', `an ssh or git remote cannot be reached with network ${remote.network}`, {
      hint: 'use network open, or an http(s) remote_url, which goes through the git proxy of the server',
    })
}
