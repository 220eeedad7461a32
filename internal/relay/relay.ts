// The server's end of the sockets. It owns the listeners and the protocol with the programs in containers: authentication,
// validation and limits. Guarantees: each message reaches a handler validated and with the identity of its container, and
// commands go to the one supervisor of a container. The handlers implement the messages and write the rows.
import type { Socket } from 'node:net'
import { Fault, messageOf } from '../fault.ts'
import { createThrottledWarn } from '../lib/throttled-log.ts'
import type { Log } from '../log.ts'
import type { Frame } from '../protocol/frame-queue.ts'
import { type Call, createPeer, type Load, type Peer, type Watch } from '../protocol/peer.ts'
import type { PeerLimits } from '../protocol/peer-limits.ts'
import { createThrottle, type Throttle } from '../protocol/throttle.ts'
import { type DroidSide, droidHandlers } from './droid-side.ts'
import { type Listener, listen } from './listen.ts'
import { createLoadShedding } from './load-shedding.ts'
import { onFirstByte } from './sniff.ts'
import {
  type SupervisorLink,
  type SupervisorSide,
  supervisorHandlers,
  watchHeartbeat,
} from './supervisor-side.ts'

export type RelayHandlers<Identity extends { session_id: string }> = SupervisorSide & DroidSide<Identity>

type Place = { directory: string; uid: number; gid: number }

export interface Relay {
  /** Listens in `directory` for one container. Safe to repeat; a deleted socket is created again. */
  open(project_id: string, place: Place): Promise<void>
  /** Ends the listener and every connection of one container. No error if there is none. */
  close(project_id: string): Promise<void>
  supervisor(project_id: string): SupervisorLink | undefined
  /** Containers whose supervisor was disconnected because it did not answer, and has not reconnected. */
  unresponsive(): string[]
  /** `connections` of supervisors and droids, `http` of git and model requests and terminals. */
  counts(): { sockets: number; supervisors: number; connections: number; http: number }
  /** The supervisor, as soon as it is connected; throws `timeout`. */
  waitForSupervisor(
    project_id: string,
    options: { timeout_ms: number; signal?: AbortSignal },
  ): Promise<SupervisorLink>
  /** Notifies the droids of the container, or of one session, that their list of tools has changed. */
  toolsChanged(project_id: string, session_id?: string): void
  dispose(): Promise<void>
}

type Connection = { peer: Peer; proven: boolean; session_id?: string }
type Opened = {
  listener: Listener
  connections: Set<Connection>
  /** The connection that is, or is about to be, the supervisor. */
  supervisor_peer?: Peer
  link?: SupervisorLink
  /** Its last supervisor did not answer and was disconnected. */
  unresponsive: boolean
  waiters: Set<(link: SupervisorLink) => void>
  renewing?: Promise<void>
  closed: boolean
  shedLoad: () => void
  throttle: Throttle
  /** Connections that have not sent anything yet, and those that use HTTP. */
  silent: Set<Socket>
  http: Set<Socket>
}

const maxConnections = 512
const firstFrameMs = 10_000

/** A reconnecting supervisor does not queue behind its droids; the handshake verifies its proof. */
const isSupervisorHello = ({ text }: Frame): boolean =>
  text.length < 1024 * 1024 && text.includes('"role":"supervisor"')

export function createRelay<Identity extends { session_id: string }>(options: {
  handlers: RelayHandlers<Identity>
  version: string
  log: Log
  limits?: Partial<PeerLimits>
  /** Interval of heartbeats to a supervisor. */
  heartbeat_ms?: number
  /** Containers whose supervisors cannot answer, because they are paused. */
  paused?: (project_id: string) => boolean
  /** What the connections of one container may hold together. */
  container?: Load
  /** Milliseconds that a message of this weight has to wait; 0 accepts it. Not applied to supervisors. */
  pace?: (project_id: string, weight: number) => number
  /** Looks at requests of a container before they are parsed. */
  watch?: (project_id: string) => Watch
  /** Takes over connections that use HTTP. */
  http?: (project_id: string, socket: Socket) => void
}): Relay {
  const { handlers, log } = options
  const warn = createThrottledWarn(log)
  const opened = new Map<string, Promise<Opened>>()
  const ready = new Map<string, Opened>()
  let disposed = false

  function admit(project_id: string, place: Opened, socket: Socket): void {
    if (place.connections.size >= maxConnections) {
      // Unauthenticated connections must not block others.
      const oldest = [...place.connections].find((connection) => !connection.proven)
      if (!oldest) return void socket.destroy()
      oldest.peer.close(new Fault('exhausted', 'too many connections'))
    }
    const early = setTimeout(
      () => connection.peer.close(new Fault('timeout', 'nothing was received')),
      firstFrameMs,
    ).unref()
    const methods = {}
    let first = true
    const connection: Connection = {
      proven: false,
      peer: createPeer(socket, {
        handlers: methods,
        bounded: true,
        on_frame: () => clearTimeout(early),
        throttle: (frame, go) => {
          const free = place.supervisor_peer === connection.peer || (first && isSupervisorHello(frame))
          first = false
          return free ? undefined : place.throttle(frame, go)
        },
        on_load: place.shedLoad,
        ...(options.watch ? { watch: options.watch(project_id) } : {}),
        ...(options.limits ? { limits: options.limits } : {}),
      }),
    }
    place.connections.add(connection)
    const supervisor = supervisorHandlers({
      project_id,
      version: options.version,
      handlers,
      peer: connection.peer,
      proves: (proof) => place.listener.proves(proof),
      reserve: () => {
        if (place.supervisor_peer?.open) return false
        place.supervisor_peer = connection.peer
        return true
      },
      release: () => {
        if (place.supervisor_peer === connection.peer) delete place.supervisor_peer
      },
      onConnected: (link) => {
        connection.proven = true
        place.link = link
        place.unresponsive = false
        log.info('supervisor connected', { project_id, boot_id: link.boot_id })
        watchHeartbeat(link, {
          ...(options.heartbeat_ms ? { interval_ms: options.heartbeat_ms } : {}),
          paused: () => options.paused?.(project_id) ?? false,
          on_given_up: () => {
            place.unresponsive = true
            log.warn('supervisor does not answer, disconnecting it', { project_id })
          },
        })
        handlers.supervisorReady(link)
        for (const waiter of [...place.waiters]) waiter(link)
      },
    })
    const droid = droidHandlers({
      project_id,
      handlers,
      is_supervisor: () => supervisor.connected(),
      identified: (session_id) => {
        connection.proven = true
        connection.session_id = session_id
      },
    })
    Object.assign(methods, droid.methods, supervisor.methods, {
      hello: (params: unknown, { refused }: Call) => {
        if (refused) throw refused
        return (params as { role?: unknown } | null)?.role === 'supervisor'
          ? supervisor.hello(params)
          : droid.hello(params)
      },
    })
    void connection.peer.closed.then((why) => {
      clearTimeout(early)
      place.connections.delete(connection)
      if (why.kind !== 'unavailable')
        warn(project_id, 'closed a connection of a container', { project_id, reason: why.message })
      if (place.link?.peer !== connection.peer) return
      const { link } = place
      delete place.link
      log.info('supervisor disconnected', { project_id, reason: why.message })
      handlers.supervisorGone(link)
    })
  }

  function receive(project_id: string, place: Opened, socket: Socket): void {
    const { http } = options
    if (!http) return void admit(project_id, place, socket)
    const { value: oldest } = place.silent.values().next()
    if (oldest && place.silent.size >= maxConnections) oldest.destroy()
    place.silent.add(socket)
    socket.once('close', () => {
      place.silent.delete(socket)
      place.http.delete(socket)
    })
    onFirstByte(socket, firstFrameMs, (protocol) => {
      place.silent.delete(socket)
      if (protocol === 'frames') return void admit(project_id, place, socket)
      if (place.http.size >= maxConnections) return void socket.destroy()
      place.http.add(socket)
      http(project_id, socket)
    })
  }

  async function openOne(project_id: string, where: Place) {
    const place: Opened = {
      listener: undefined as never,
      connections: new Set(),
      unresponsive: false,
      waiters: new Set(),
      closed: false,
      shedLoad: createLoadShedding(
        () =>
          [...place.connections]
            .map(({ peer }) => peer)
            .filter((peer) => peer.open && peer !== place.supervisor_peer),
        options.container,
      ),
      throttle: createThrottle((weight) => options.pace?.(project_id, weight) ?? 0),
      silent: new Set(),
      http: new Set(),
    }
    place.listener = await listenFor(project_id, place, where)
    ready.set(project_id, place)
    return place
  }

  const listenFor = (project_id: string, place: Opened, where: Place): Promise<Listener> =>
    listen({
      ...where,
      on_connection: (socket) => receive(project_id, place, socket),
      on_error: (error) => log.error('failed to accept connections on a relay socket', { project_id, error }),
    })

  /** Connections that are open stay so. */
  async function renew(project_id: string, place: Opened, where: Place): Promise<void> {
    if (await place.listener.isThere()) return
    log.warn('relay socket was deleted, creating it again', { project_id })
    const former = place.listener
    const renewed = await listenFor(project_id, place, where)
    if (place.closed) return await renewed.close()
    place.listener = renewed
    former.close().catch((error: unknown) => log.debug('failed to close a deleted socket', { error }))
  }

  async function closeOne(project_id: string): Promise<void> {
    const opening = opened.get(project_id)
    if (!opening) return
    opened.delete(project_id)
    const place = await opening.catch(() => undefined)
    if (!place) return
    place.closed = true
    if (ready.get(project_id) === place) ready.delete(project_id)
    for (const socket of [...place.silent, ...place.http]) socket.destroy()
    for (const { peer } of place.connections) peer.close(new Fault('unavailable', 'the server is closing'))
    await place.listener.close()
  }

  return {
    async open(project_id, where) {
      // A sweep that is still running must not open a listener that keeps a stopping process alive.
      if (disposed) throw new Fault('unavailable', 'the server is stopping')
      let opening = opened.get(project_id)
      if (!opening) {
        opening = openOne(project_id, where)
        opened.set(project_id, opening)
        opening.catch(() => opened.delete(project_id))
        return void (await opening)
      }
      const place = await opening
      place.renewing ??= renew(project_id, place, where).finally(() => delete place.renewing)
      await place.renewing
    },
    close: closeOne,
    supervisor: (project_id) => ready.get(project_id)?.link,
    unresponsive: () =>
      [...ready].filter(([, place]) => place.unresponsive).map(([project_id]) => project_id),
    counts() {
      const places = [...ready.values()]
      const sum = (of: (place: Opened) => number) => places.reduce((all, place) => all + of(place), 0)
      return {
        sockets: places.length,
        supervisors: sum(({ link }) => (link ? 1 : 0)),
        connections: sum(({ connections }) => connections.size),
        http: sum(({ http }) => http.size),
      }
    },
    async waitForSupervisor(project_id, { timeout_ms, signal }) {
      const place = ready.get(project_id)
      if (!place) throw new Fault('unavailable', `no socket is open for project ${project_id}`)
      if (place.link) return place.link
      const { promise, resolve, reject } = Promise.withResolvers<SupervisorLink>()
      const timer = setTimeout(
        () =>
          reject(
            new Fault(
              'timeout',
              `the supervisor of the container did not connect within ${timeout_ms / 1000} s`,
              {
                hint: 'check container logs, or restart it with container start and recreate',
              },
            ),
          ),
        timeout_ms,
      )
      const onAbort = () => reject(signal?.reason)
      signal?.addEventListener('abort', onAbort, { once: true })
      place.waiters.add(resolve)
      try {
        signal?.throwIfAborted()
        return await promise
      } finally {
        clearTimeout(timer)
        signal?.removeEventListener('abort', onAbort)
        place.waiters.delete(resolve)
      }
    },
    toolsChanged(project_id, session_id) {
      for (const connection of ready.get(project_id)?.connections ?? []) {
        if (connection.session_id === undefined) continue
        if (session_id !== undefined && connection.session_id !== session_id) continue
        connection.peer.notify('tools_changed', {})
      }
    },
    async dispose() {
      disposed = true
      const closing = await Promise.allSettled([...opened.keys()].map(closeOne))
      for (const outcome of closing)
        if (outcome.status === 'rejected')
          log.warn('failed to close a relay socket', { error: messageOf(outcome.reason) })
    },
  }
}
