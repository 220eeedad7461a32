// The connections from containers: one socket per project, on which supervisors and droids connect and which also carries
// HTTP requests to git remotes and model providers, and the bytes of terminals.
import { createRate } from '../../auth/rate.ts'
import type { Config } from '../../config/load.ts'
import { Fault, messageOf } from '../../fault.ts'
import { createThrottledWarn } from '../../lib/throttled-log.ts'
import { terminalPath } from '../../protocol/wire.ts'
import { createByteStreams } from '../../relay/byte-streams.ts'
import type { DroidSide } from '../../relay/droid-side.ts'
import { createRelay, type Relay } from '../../relay/relay.ts'
import { onRequestPath } from '../../relay/sniff.ts'
import { allProjects, runningAmong } from '../../store/rows/projects.ts'
import { preparingProjects } from '../../store/rows/workspaces.ts'
import type { Foundation } from '../composition/foundation.ts'
import type { ExecRecords } from '../exec/records.ts'
import { createSupervised } from '../exec/supervised.ts'
import { createModelUse } from '../model/model-use.ts'
import { createGitUse } from '../project/git-use.ts'
import type { SessionEnds } from '../session/ends.ts'
import type { Identity } from '../session/identity.ts'
import type { Pause } from './pause.ts'
import { createSupervision } from './supervision.ts'

const firstRequestMs = 10_000
/** A message of more bytes than this counts as several. */
const messageBytes = 16 * 1024

/** Milliseconds that a container has to wait before its next message of this size; 0 if it may send it now. */
export type ContainerThrottle = (project_id: string, bytes: number) => number

function createContainerThrottle({ rate }: Config): ContainerThrottle {
  const messages = createRate({
    per_second: rate.per_container_per_second,
    burst: rate.per_container_burst,
  })
  return (project_id, bytes) => {
    const taken = messages.take(project_id, 1 + Math.floor(bytes / messageBytes))
    return taken.ok ? 0 : Math.ceil(taken.retry_after_seconds * 1000)
  }
}

type Deps = {
  base: Foundation
  version: string
  pause: Pause
  ends: Pick<SessionEnds, 'over'>
  execs: Pick<ExecRecords, 'hello' | 'ended'>
  droid: DroidSide<Identity>['droid']
}

export function createUplink({ base, version, pause, ends, execs, droid }: Deps) {
  const { config, store, runtime, layout, owner, poison, preparing, log } = base
  const throttle = createContainerThrottle(config)
  const identify = base.identities.identify
  const git = createGitUse({ ...base, identify, throttle })
  const models = createModelUse({ ...base, identify, throttle })
  const byteStreams = createByteStreams()
  const services = { '/git/': git, [terminalPath]: byteStreams, none: models }
  const supervision = createSupervision({
    ...base,
    execs,
    fail: (session_id, reason) => ends.over(session_id, 'failed', reason),
    warn: createThrottledWarn(log),
  })
  const relay: Relay = createRelay<Identity>({
    version,
    log,
    pace: throttle,
    heartbeat_ms: config.heartbeat_seconds * 1000,
    paused: pause.isPaused,
    watch: (project_id) => ({
      isSuspect: (key) => poison.isSuspect(project_id, key),
      begin: (request) => poison.begin({ project_id, ...request }),
    }),
    handlers: { ...supervision, authenticate: identify, droid },
    http: (project_id, socket) =>
      onRequestPath(
        socket,
        { prefixes: ['/git/', terminalPath] as const, silence_ms: firstRequestMs },
        (matching) => services[matching].accept(project_id, socket),
      ),
  })
  let ready = false

  async function listen(project_id: string): Promise<void> {
    await relay.open(project_id, { directory: layout.socketDir(project_id), ...owner })
  }

  return {
    relay,
    git,
    models,
    byteStreams,
    supervisorOf: createSupervised({ relay, runtime, paused: pause }),
    /** Opens the socket of one project. Safe to repeat. */
    listen,
    /** Opens the sockets of all containers that may still run, so that their supervisors can connect at once. */
    async listenAll(): Promise<void> {
      ready = false
      for (const project_id of await preparingProjects(store.db)) preparing.add(project_id)
      for (const project of await allProjects(store.db))
        if (project.wanted === 'running' && !project.deleting_at) await listen(project.id)
      await pause.load()
      ready = true
    },
    async requireReady(): Promise<void> {
      if (!ready) throw new Fault('unavailable', 'the sockets of the containers are not open yet')
    },
    /** Ends what is left of sessions in their container and removes their journals. */
    forgetSessions(project_id: string, session_ids: string[]): void {
      for (const session_id of session_ids)
        relay
          .supervisor(project_id)
          ?.send('forget', { session_id })
          // The answer to the supervisor's next hello lists the session as unknown.
          .catch((error: unknown) =>
            log.debug('failed to remove a session from its container', {
              session_id,
              reason: messageOf(error),
            }),
          )
    },
    /**
     * What does not respond although the server works, in words that may be shown without a token. The server is still
     * ready: every tenant can stop its own supervisor.
     */
    async degraded(): Promise<string[]> {
      const ids = relay.unresponsive()
      const hanging = ids.length === 0 ? 0 : await runningAmong(store.db, ids)
      return hanging === 0 ? [] : [`relay: the supervisors of ${hanging} containers do not answer`]
    },
  }
}
export type Uplink = ReturnType<typeof createUplink>
