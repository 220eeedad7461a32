// A container's supervisor as the server sees it: its hello, its batches of events, and the commands it takes.
import type { z } from 'zod'
import { Fault } from '../fault.ts'
import {
  type CommandName,
  type CommandParams,
  type CommandResult,
  commandResults,
  type EventBatch,
  type EventsAnswer,
  type ExecsEnded,
  type ExecsSettled,
  eventBatch,
  execsEnded,
  type HelloAnswer,
  type SupervisorHello,
  supervisorHello,
} from '../protocol/messages.ts'
import type { Handlers, Peer, RequestOptions } from '../protocol/peer.ts'
import { codes, protocolVersion, type WireError } from '../protocol/wire.ts'
import { parse } from './droid-side.ts'

export type SupervisorSide = {
  /** What the server has of the sessions that the supervisor holds. */
  supervisorHello(project_id: string, hello: SupervisorHello): Promise<HelloAnswer>
  /** Commands can be sent from now on. */
  supervisorReady(link: SupervisorLink): void
  supervisorGone(link: SupervisorLink): void
  /** A client of another protocol version connected: its container has to be restarted to get this server's client. */
  supervisorOutdated(project_id: string, protocol: number): void
  /**
   * Commit, then answer. Batches of one session come one after another; a thrown fault makes it try again later.
   * `refused`: the batch ended the server before; its content is left out.
   */
  events(project_id: string, batch: EventBatch, refused?: Fault): Promise<EventsAnswer>
  /** How detached commands ended. Commit, then answer. */
  execsEnded(project_id: string, told: ExecsEnded): Promise<ExecsSettled>
}

export type SupervisorLink = {
  readonly project_id: string
  readonly boot_id: string
  readonly peer: Peer
  /**
   * Rejects with `unavailable` when the connection ends first: repeat with the same `command_id` on the next link. Rejects
   * with `timeout` when the supervisor does not answer in time, whatever the time is: there is always one.
   */
  send<C extends CommandName>(
    command: C,
    params: CommandParams[C],
    options?: RequestOptions,
  ): Promise<CommandResult<C>>
}

const intervalMs = 5_000
const maxMissed = 3
const answerMs = 30_000
/** A command that ran out of its time is killed with all that it started, and what it said last is read. */
const killMs = 6_000
/** The longest time that a terminal can stay open. */
const terminalMs = 7 * 24 * 3_600_000

function timeoutFor(command: CommandName, params: object): number {
  if (command === 'exec') return (params as CommandParams['exec']).timeout_seconds * 1000 + killMs
  if (command === 'terminal') return terminalMs
  if (command === 'exec_wait') return (params as CommandParams['exec_wait']).wait_ms + killMs
  return answerMs
}

/** What the supervisor itself answers with this kind has the answer as its cause. */
const isUnanswered = (error: unknown): boolean =>
  error instanceof Fault && error.kind === 'timeout' && error.cause === undefined

/** The client of the container was started by an older server. */
const isUnsupported = (error: unknown): boolean =>
  error instanceof Fault && (error.cause as Partial<WireError> | undefined)?.code === codes.method

const outdated = (command: string, cause: unknown) =>
  new Fault(
    'conflict',
    `the client in the container is older than the server and does not support ${command}`,
    {
      hint: 'restart the container with container start and recreate to get the client of this server',
      cause,
    },
  )

const unanswered = (command: string, ms: number, cause: unknown) =>
  new Fault(
    'timeout',
    `the supervisor of the container did not answer ${command} within ${Math.ceil(ms / 1000)} s`,
    { hint: 'check container logs, or restart it with container start and recreate', cause },
  )

export function supervisorHandlers(options: {
  project_id: string
  version: string
  handlers: SupervisorSide
  peer: Peer
  proves(proof: string): boolean
  /** Makes this connection the container's supervisor; false while another one is connected. */
  reserve(): boolean
  release(): void
  onConnected(link: SupervisorLink): void
}) {
  const { project_id, handlers, peer } = options
  let link: SupervisorLink | undefined

  const methods: Handlers = {
    events: (raw, { refused }) => {
      if (!link) throw new Fault('unauthenticated', 'only the supervisor may send events')
      return handlers.events(project_id, parse(eventBatch, raw, 'events'), refused)
    },
    execs_ended: (raw, { refused }) => {
      if (!link) throw new Fault('unauthenticated', 'only the supervisor may report ended commands')
      if (refused) throw refused
      return handlers.execsEnded(project_id, parse(execsEnded, raw, 'execs_ended'))
    },
  }

  async function hello(raw: unknown) {
    const { protocol } = raw as { protocol?: unknown }
    // Asked before the shape, which another version may have changed.
    if (typeof protocol === 'number' && protocol !== protocolVersion) {
      handlers.supervisorOutdated(project_id, protocol)
      throw new Fault(
        'conflict',
        `the client uses protocol version ${protocol}, the server version ${protocolVersion}`,
        {
          hint: 'restart the container to get the client of this server',
        },
      )
    }
    const received = parse(supervisorHello, raw, 'hello')
    if (!options.proves(received.proof))
      throw new Fault('unauthenticated', 'the proof does not match this container')
    if (link || !options.reserve()) throw new Fault('conflict', 'this container already has a supervisor')
    const made: SupervisorLink = {
      project_id,
      boot_id: received.boot_id,
      peer,
      async send(command, params, how) {
        const timeout_ms = how?.timeout_ms ?? timeoutFor(command, params)
        const result = await peer.request(command, params, { ...how, timeout_ms }).catch((error: unknown) => {
          if (isUnanswered(error) && !how?.signal?.aborted) throw unanswered(command, timeout_ms, error)
          throw isUnsupported(error) ? outdated(command, error) : error
        })
        return parse(commandResults[command] as z.ZodType<unknown>, result, command) as CommandResult<
          typeof command
        >
      },
    }
    link = made
    const answer = await handlers.supervisorHello(project_id, received).catch((error) => {
      link = undefined
      options.release()
      throw error
    })
    // After the answer is written, so that the first command never overtakes it.
    setImmediate(() => peer.open && options.onConnected(made))
    return { protocol: protocolVersion, server_version: options.version, ...answer }
  }

  return { methods, hello, connected: () => link !== undefined }
}

/**
 * Disconnects a supervisor that does not answer: a stopped or hung process keeps its connection open. Any message counts as an
 * answer. Missed heartbeats are counted instead of time, because after a stall of the server the answers are not read yet.
 */
export function watchHeartbeat(
  { peer, send }: Pick<SupervisorLink, 'peer' | 'send'>,
  options: {
    interval_ms?: number
    /** Whether the container is paused, so that its supervisor cannot answer. */
    paused: () => boolean
    on_given_up: () => void
  },
): void {
  const { interval_ms = intervalMs } = options
  let missed = 0
  const timer = setInterval(() => {
    missed = peer.wasSilent() && !options.paused() ? missed + 1 : 0
    if (missed >= maxMissed) {
      options.on_given_up()
      return peer.close(new Fault('timeout', 'the supervisor of the container does not answer'))
    }
    // The next heartbeat shows whether it was answered.
    send('ping', {}, { timeout_ms: interval_ms * maxMissed }).catch(() => undefined)
  }, interval_ms).unref()
  void peer.closed.then(() => clearInterval(timer))
}
