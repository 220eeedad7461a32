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
  /** Another protocol version knocked: its container has to be restarted to get the client of this server. */
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
const mostMissed = 3
const answerMs = 30_000
/** A command that ran out of its time is killed with all that it started, and what it said last is read. */
const killMs = 6_000

function patienceFor(command: CommandName, params: object): number {
  if (command === 'exec') return (params as CommandParams['exec']).timeout_seconds * 1000 + killMs
  if (command === 'exec_wait') return (params as CommandParams['exec_wait']).wait_ms + killMs
  return answerMs
}

/** What the supervisor itself answers with this kind has the answer as its cause. */
const isUnanswered = (error: unknown): boolean =>
  error instanceof Fault && error.kind === 'timeout' && error.cause === undefined

/** The client of the container was started by an older server. */
const isUnheardOf = (error: unknown): boolean =>
  error instanceof Fault && (error.cause as Partial<WireError> | undefined)?.code === codes.method

const outdated = (command: string, cause: unknown) =>
  new Fault('conflict', `the client in the container is older than the server and has no ${command}`, {
    hint: 'container start with recreate restarts it with the client of this server',
    cause,
  })

const unanswered = (command: string, ms: number, cause: unknown) =>
  new Fault(
    'timeout',
    `the supervisor of the container did not answer ${command} within ${Math.ceil(ms / 1000)} s`,
    { hint: 'container logs shows what it says; container start with recreate restarts it', cause },
  )

export function supervisorHandlers(options: {
  project_id: string
  version: string
  handlers: SupervisorSide
  peer: Peer
  proves(proof: string): boolean
  /** Takes the container's one seat; false while another connected supervisor has it. */
  claim(): boolean
  release(): void
  seat(link: SupervisorLink): void
}) {
  const { project_id, handlers, peer } = options
  let link: SupervisorLink | undefined

  const methods: Handlers = {
    events: (raw, { refused }) => {
      if (!link) throw new Fault('unauthenticated', 'events come from the supervisor only')
      return handlers.events(project_id, parse(eventBatch, raw, 'events'), refused)
    },
    execs_ended: (raw, { refused }) => {
      if (!link) throw new Fault('unauthenticated', 'endings of commands come from the supervisor only')
      if (refused) throw refused
      return handlers.execsEnded(project_id, parse(execsEnded, raw, 'execs_ended'))
    },
  }

  async function hello(raw: unknown) {
    const { protocol } = raw as { protocol?: unknown }
    // Asked before the shape, which another version may have changed.
    if (typeof protocol === 'number' && protocol !== protocolVersion) {
      handlers.supervisorOutdated(project_id, protocol)
      throw new Fault('conflict', `client protocol ${protocol}, server protocol ${protocolVersion}`, {
        hint: 'restart the container to get the client of this server',
      })
    }
    const said = parse(supervisorHello, raw, 'hello')
    if (!options.proves(said.proof))
      throw new Fault('unauthenticated', 'the proof is not that of this container')
    if (link || !options.claim()) throw new Fault('conflict', 'this container has a supervisor already')
    const made: SupervisorLink = {
      project_id,
      boot_id: said.boot_id,
      peer,
      async send(command, params, how) {
        const timeout_ms = how?.timeout_ms ?? patienceFor(command, params)
        const result = await peer.request(command, params, { ...how, timeout_ms }).catch((error: unknown) => {
          if (isUnanswered(error) && !how?.signal?.aborted) throw unanswered(command, timeout_ms, error)
          throw isUnheardOf(error) ? outdated(command, error) : error
        })
        return parse(commandResults[command] as z.ZodType<unknown>, result, command) as CommandResult<
          typeof command
        >
      },
    }
    link = made
    const answer = await handlers.supervisorHello(project_id, said).catch((error) => {
      link = undefined
      options.release()
      throw error
    })
    // After the answer is written, so that the first command never overtakes it.
    setImmediate(() => peer.open && options.seat(made))
    return { protocol: protocolVersion, server_version: options.version, ...answer }
  }

  return { methods, hello, seated: () => link !== undefined }
}

/** Ends the connection after so many beats without a sign of life; anything that the supervisor says is one. */
export function watchHeartbeat(
  { peer, send }: Pick<SupervisorLink, 'peer' | 'send'>,
  options: {
    interval_ms?: number
    /** Whether its silence is somebody's wish: the container is paused. */
    paused: () => boolean
    on_given_up: () => void
  },
): void {
  const { interval_ms = intervalMs } = options
  let missed = 0
  const timer = setInterval(() => {
    missed = peer.wasSilent() && !options.paused() ? missed + 1 : 0
    if (missed >= mostMissed) {
      options.on_given_up()
      return peer.close(new Fault('timeout', 'the supervisor of the container does not answer'))
    }
    // Whether it is answered shows at the next beat.
    send('ping', {}, { timeout_ms: interval_ms * mostMissed }).catch(() => undefined)
  }, interval_ms).unref()
  void peer.closed.then(() => clearInterval(timer))
}
