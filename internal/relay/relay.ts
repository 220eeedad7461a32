// The server's end of the sockets. This room owns the frames, the listeners and the protocol with what lives in the
// containers: who may speak, in which shape, and how much at once. It promises that each message reaches a handler
// validated and with the identity of the container it came from, and that commands go to the one supervisor of a
// container. What the messages mean, and every row, is left to the handlers.
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
  /** Listens in `directory` for one container. Safe to repeat; a socket that was deleted is made anew. */
  open(project_id: string, place: Place): Promise<void>
  /** Ends the listener and every connection of one container. No error if there is none. */
  close(project_id: string): Promise<void>
  supervisor(project_id: string): SupervisorLink | undefined
  /** Containers whose supervisor was given up because it did not answer, and has not come back since. */
  unresponsive(): string[]
  /** The supervisor, as soon as it is connected; throws `timeout`. */
  waitForSupervisor(
    project_id: string,
    options: { timeout_ms: number; signal?: AbortSignal },
  ): Promise<SupervisorLink>
  /** Tells the droid's side (all sessions of the container, or one) that its list of tools is another now. */
  toolsChanged(project_id: string, session_id?: string): void
  dispose(): Promise<void>
}

type Connection = { peer: Peer; proven: boolean; session_id?: string }
type Opened = {
  listener: Listener
  connections: Set<Connection>
  /** Who is, or is about to be, this container's one supervisor. */
  seat?: Peer
  link?: SupervisorLink
  /** Its last supervisor did not answer and was given up. */
  unresponsive: boolean
  waiters: Set<(link: SupervisorLink) => void>
  renewing?: Promise<void>
  closed: boolean
  relieve: () => void
  pace: Throttle
  /** Connections that have not said anything yet, and those that speak HTTP. */
  silent: Set<Socket>
  http: Set<Socket>
}

const maxConnections = 512
const firstFrameMs = 10_000

/** A supervisor that comes back does not stand in line behind its droids; whether it is one, its proof tells. */
const isSupervisorHello = ({ text }: Frame): boolean =>
  text.length < 1024 * 1024 && text.includes('"role":"supervisor"')

export function createRelay<Identity extends { session_id: string }>(options: {
  handlers: RelayHandlers<Identity>
  version: string
  log: Log
  limits?: Partial<PeerLimits>
  /** How often a supervisor is asked for a sign of life. */
  heartbeat_ms?: number
  /** Containers whose supervisors cannot answer, because they are paused. */
  paused?: (project_id: string) => boolean
  /** What the connections of one container may hold together. */
  container?: Load
  /** How many milliseconds a message of this weight has to wait before it is taken; 0 takes it. Not for supervisors. */
  pace?: (project_id: string, weight: number) => number
  /** Looks at requests of a container before they are parsed. */
  watch?: (project_id: string) => Watch
  /** Takes connections over that speak HTTP: droids that ask their model. */
  http?: (project_id: string, socket: Socket) => void
}): Relay {
  const { handlers, log } = options
  const warn = createThrottledWarn(log)
  const opened = new Map<string, Promise<Opened>>()
  const ready = new Map<string, Opened>()
  let disposed = false

  function admit(project_id: string, place: Opened, socket: Socket): void {
    if (place.connections.size >= maxConnections) {
      // Those that never showed a key must not keep the others out.
      const oldest = [...place.connections].find((connection) => !connection.proven)
      if (!oldest) return void socket.destroy()
      oldest.peer.close(new Fault('exhausted', 'too many connections'))
    }
    const early = setTimeout(
      () => connection.peer.close(new Fault('timeout', 'nothing was said')),
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
        pace: (frame, go) => {
          const free = place.seat === connection.peer || (first && isSupervisorHello(frame))
          first = false
          return free ? undefined : place.pace(frame, go)
        },
        on_load: place.relieve,
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
      claim: () => {
        if (place.seat?.open) return false
        place.seat = connection.peer
        return true
      },
      release: () => {
        if (place.seat === connection.peer) delete place.seat
      },
      seat: (link) => {
        connection.proven = true
        place.link = link
        place.unresponsive = false
        log.info('supervisor connected', { project_id, boot_id: link.boot_id })
        watchHeartbeat(link, {
          ...(options.heartbeat_ms ? { interval_ms: options.heartbeat_ms } : {}),
          paused: () => options.paused?.(project_id) ?? false,
          on_given_up: () => {
            place.unresponsive = true
            log.warn('the supervisor of a container does not answer', { project_id })
          },
        })
        handlers.supervisorReady(link)
        for (const waiter of [...place.waiters]) waiter(link)
      },
    })
    const droid = droidHandlers({
      project_id,
      handlers,
      is_supervisor: () => supervisor.seated(),
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
        warn(project_id, 'a connection from a container was ended', { project_id, why: why.message })
      if (place.link?.peer !== connection.peer) return
      const { link } = place
      delete place.link
      log.info('supervisor gone', { project_id, why: why.message })
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
      relieve: createLoadShedding(
        () =>
          [...place.connections].map(({ peer }) => peer).filter((peer) => peer.open && peer !== place.seat),
        options.container,
      ),
      pace: createThrottle((weight) => options.pace?.(project_id, weight) ?? 0),
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
      on_error: (error) => log.error('a relay socket failed', { project_id, error }),
    })

  /** Connections that are open stay so. */
  async function renew(project_id: string, place: Opened, where: Place): Promise<void> {
    if (await place.listener.isThere()) return
    log.warn('the socket of a container was deleted and is made anew', { project_id })
    const former = place.listener
    const renewed = await listenFor(project_id, place, where)
    if (place.closed) return await renewed.close()
    place.listener = renewed
    former.close().catch((error: unknown) => log.debug('a deleted socket does not close', { error }))
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
      // A sweep that is still under way must not open what keeps a stopping process alive.
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
                hint: 'container logs shows what it says; container start with recreate restarts it',
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
          log.warn('a relay socket did not close', { error: messageOf(outcome.reason) })
    },
  }
}
