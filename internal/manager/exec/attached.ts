// Commands in containers that a caller waits for. The supervisor of the container runs them: it enforces the deadline and ends
// the command when the connection to the server is lost. A container that does not run is started.
import type { Config } from '../../config/load.ts'
import { Fault, messageOf } from '../../fault.ts'
import { services } from '../../git/remote.ts'
import type { ExecRequest } from '../../protocol/messages.ts'
import type { SupervisorLink } from '../../relay/supervisor-side.ts'
import type { Containers } from '../container/containers.ts'
import { stepText } from '../container/starts.ts'
import {
  accountsRequest,
  foreignUser,
  isOwnName,
  isOwnUser,
  mayBeOwnName,
  type Owner,
} from '../container/user.ts'
import type { GitUse } from '../project/git-use.ts'
import type { SupervisorOf } from './supervised.ts'

export type ExecHooks = {
  signal: AbortSignal
  /** Steps before the command runs, and its output. */
  progress: (message: string) => void
}

type Deps = {
  config: Config
  owner: Owner
  git: Pick<GitUse, 'issue'>
  supervisor: (project_id: string) => SupervisorLink | undefined
  supervisorOf: SupervisorOf
  containers: Pick<Containers, 'start'>
}

const progressCharacters = 16 * 1024
/** Per call, in characters: the server does not buffer the output of a day for a client that reads nothing. */
const progressTotal = 4 * 1024 * 1024
const progressIntervalMs = 200

/** Progress that a container reports for a command. Its type, size and rate are not trusted. */
export function createOutputProgress(report: ExecHooks['progress']): (update: { message?: unknown }) => void {
  let last = Number.NEGATIVE_INFINITY
  let sent = 0
  return ({ message }) => {
    if (typeof message !== 'string' || message === '' || sent > progressTotal) return
    const now = performance.now()
    if (now - last < progressIntervalMs) return
    last = now
    const text = message.slice(0, progressCharacters).toWellFormed()
    sent += text.length
    report(sent > progressTotal ? `${text}\n[further output is not shown while the command runs]\n` : text)
  }
}

/** A caller that disconnects stops waiting; work that is shared with others continues. */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>()
  const onAbort = () => reject(signal.reason)
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    signal.throwIfAborted()
    return await Promise.race([work, aborted])
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}

const interrupted = (error: Fault) =>
  new Fault('unavailable', `the command was interrupted: ${messageOf(error)}`, {
    hint: 'the container stopped, restarted or does not respond; the command is ended with it',
    cause: error,
  })

export function createAttached(deps: Deps) {
  /** Running calls, by project. */
  const waiting = new Map<string, number>()

  /** The supervisor of the container, which is started if it does not run. */
  async function ensure(project_id: string, { signal, progress }: ExecHooks): Promise<SupervisorLink> {
    // A connected supervisor proves that the project and its container exist.
    if (deps.supervisor(project_id)) return await deps.supervisorOf(project_id, signal)
    const starting = deps.containers.start(project_id, { progress: (step) => progress(stepText(step)) })
    await unlessAborted(starting, signal)
    return await deps.supervisorOf(project_id, signal)
  }

  async function send(link: SupervisorLink, request: ExecRequest, hooks: ExecHooks) {
    const { project_id } = link
    using issued = deps.git.issue(project_id, services)
    return await link
      .send(
        'exec',
        { ...request, git_key: issued.key },
        { signal: hooks.signal, on_progress: createOutputProgress(hooks.progress) },
      )
      .catch((error: unknown) => {
        throw error instanceof Fault && error.kind === 'unavailable' ? interrupted(error) : error
      })
  }

  /** Throws `forbidden` for any user but the container's own. */
  async function requireOwnUser(link: SupervisorLink, user: string | undefined, hooks: ExecHooks) {
    if (user === undefined || isOwnUser(user, deps.owner)) return
    const accounts = mayBeOwnName(user, deps.owner) ? await send(link, accountsRequest, hooks) : undefined
    if (!accounts || !isOwnName(user, deps.owner, accounts.stdout)) throw foreignUser(user, deps.owner)
  }

  async function run(project_id: string, user: string | undefined, request: ExecRequest, hooks: ExecHooks) {
    const running = waiting.get(project_id) ?? 0
    if (running >= deps.config.execs.attached)
      throw new Fault(
        'exhausted',
        `${running} commands of this project are running with a waiting caller, the limit`,
        {
          hint: 'wait until one ends, or use detach; the limit is execs.attached in the config',
        },
      )
    waiting.set(project_id, running + 1)
    try {
      const link = await ensure(project_id, hooks)
      await requireOwnUser(link, user, hooks)
      return await send(link, request, hooks)
    } finally {
      const left = waiting.get(project_id)! - 1
      if (left > 0) waiting.set(project_id, left)
      else waiting.delete(project_id)
    }
  }

  return { run, ensure, requireOwnUser }
}
export type Attached = ReturnType<typeof createAttached>
