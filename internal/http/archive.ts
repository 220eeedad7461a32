// `GET` and `PUT /workspaces/{workspace_id}/archive?project_id=…&path=…`: files of a workspace as a tar archive. Both are
// streams of any length: they bypass the web `Request` and `Response`, have no limit of size or time, and end when nothing
// moves for a minute.
import { pipeline } from 'node:stream/promises'
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response'
import type { Context } from 'hono'
import { Fault } from '../fault.ts'
import type { Log } from '../log.ts'
import { readArchive, writeArchive } from '../tools/declarations/archive.ts'
import type { Door } from '../tools/door.ts'
import type { CallContext } from '../tools/tool.ts'
import type { Env } from './app.ts'

const stalledMs = 60_000
/** After an error, what the client still sends is discarded until it has read the response. */
const lastMs = 5_000
/** A trailer: what is left out is known at the end. */
export const skippedTrailer = 'X-Archive-Skipped'

export const isArchivePath = (url: string | undefined): boolean =>
  /^\/workspaces\/[^/?]+\/archive(?:\?|$)/.test(url ?? '')

const parameters = ['project_id', 'path']

function whereOf(c: Context<Env>) {
  const query = c.req.query()
  const unknown = Object.keys(query).find((name) => !parameters.includes(name))
  if (unknown !== undefined)
    throw new Fault('invalid', `unknown parameter "${unknown.slice(0, 80)}"`, {
      hint: `parameters are ${parameters.join(', ')}`,
    })
  if (query.project_id === undefined) throw new Fault('invalid', 'missing parameter project_id')
  return {
    workspace_id: c.req.param('id') ?? '',
    project_id: query.project_id,
    ...(query.path === undefined ? {} : { path: query.path }),
  }
}

/** The response is written here, not by the framework. */
export async function sendArchive(
  c: Context<Env>,
  door: Pick<Door, 'run'>,
  context: CallContext,
  log: Log,
): Promise<Response> {
  const { outgoing } = c.env
  const archive = await door.run(readArchive, context, whereOf(c))
  outgoing.setTimeout(stalledMs, () => outgoing.destroy())
  outgoing.writeHead(200, {
    'Content-Type': 'application/x-tar',
    'Cache-Control': 'no-store',
    Trailer: skippedTrailer,
  })
  try {
    await pipeline(archive.stream, outgoing, { end: false })
    const { skipped } = archive.packed()
    // Percent-encoded: names may contain any character.
    outgoing.addTrailers({ [skippedTrailer]: encodeURIComponent(JSON.stringify(skipped)) })
    outgoing.end()
  } catch (error) {
    // A connection that is cut tells the client that the archive is not complete.
    if (!outgoing.destroyed) log.warn('failed to send an archive', { request_id: context.request_id, error })
    outgoing.destroy()
  } finally {
    archive.close()
  }
  return RESPONSE_ALREADY_SENT
}

export async function receiveArchive(
  c: Context<Env>,
  door: Pick<Door, 'run'>,
  context: CallContext,
): Promise<Response> {
  const { incoming, outgoing } = c.env
  async function* body(): AsyncGenerator<Uint8Array> {
    // The client waits for this before it sends anything.
    if (incoming.headers.expect !== undefined) outgoing.writeContinue()
    try {
      // Not destroyed early: that would cut the connection before the response.
      yield* incoming.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>
    } catch (error) {
      throw new Fault('invalid', 'the request body ended early', { cause: error })
    }
  }
  incoming.setTimeout(stalledMs, () => incoming.destroy())
  outgoing.once('finish', () => {
    if (!incoming.complete) setTimeout(() => incoming.destroy(), lastMs).unref()
  })
  return c.json(await door.run(writeArchive, { ...context, body: body() }, whereOf(c)))
}
