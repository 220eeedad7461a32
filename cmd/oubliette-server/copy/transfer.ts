// Archives over HTTP: both directions are streams.
import type { IncomingMessage } from 'node:http'
import { pipeline } from 'node:stream/promises'
import { Fault, type FaultShape, messageOf } from '../../../internal/fault.ts'
import type { Endpoint } from '../client/call.ts'
import { send, textOf } from '../client/http.ts'

const { request } = process.getBuiltinModule('node:http')

export type Skipped = { count: number; entries: { path: string; reason: string }[] }

const unreachable = (url: URL, error: unknown): Fault =>
  new Fault('unavailable', `the connection to the server at ${url.origin} failed: ${messageOf(error)}`, {
    hint: 'run "./oubliette status" to check the server',
    cause: error,
  })

async function refusal(response: IncomingMessage): Promise<Fault> {
  const text = await textOf(response)
  try {
    const { kind, message, hint } = (JSON.parse(text) as { error: FaultShape }).error
    return new Fault(kind, message, hint ? { hint } : {})
  } catch {
    return new Fault('unavailable', `the server answered with HTTP status ${response.statusCode}`)
  }
}

export function archiveUrl(
  where: Endpoint,
  of: { project_id: string; workspace: string; path: string },
): URL {
  const url = new URL(`/workspaces/${encodeURIComponent(of.workspace)}/archive`, where.url)
  url.searchParams.set('project_id', of.project_id)
  url.searchParams.set('path', of.path)
  return url
}

export async function download(
  where: Endpoint,
  url: URL,
): Promise<{ archive: AsyncIterable<Buffer>; skipped: () => Skipped }> {
  const response = await send(url, { headers: { authorization: `Bearer ${where.token}` } }).catch((error) => {
    throw unreachable(url, error)
  })
  if (response.statusCode !== 200) throw await refusal(response)
  async function* archive(): AsyncGenerator<Buffer> {
    try {
      yield* response as AsyncIterable<Buffer>
    } catch (error) {
      throw new Fault('unavailable', 'the connection was lost before the archive was complete', {
        cause: error,
      })
    }
  }
  return {
    archive: archive(),
    skipped() {
      const text = response.trailers['x-archive-skipped']
      return text ? (JSON.parse(decodeURIComponent(text)) as Skipped) : { count: 0, entries: [] }
    },
  }
}

export type Uploaded = { files: number; bytes: number; skipped: Skipped }

/** Nothing is sent before the server accepts it; an answer that comes early ends the sending. */
export async function upload(where: Endpoint, url: URL, archive: AsyncIterable<Buffer>): Promise<Uploaded> {
  const outgoing = request(url, {
    method: 'PUT',
    agent: false,
    headers: {
      authorization: `Bearer ${where.token}`,
      'content-type': 'application/x-tar',
      'transfer-encoding': 'chunked',
      // Otherwise the server closes the connection after an early answer, and the next write fails before it is read.
      connection: 'keep-alive',
      expect: '100-continue',
    },
  })
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>()
  let failed: unknown
  outgoing.once('continue', () => {
    pipeline(archive, outgoing).catch((error: unknown) => {
      // The connection may have been closed by the server, which has answered then.
      failed = error
      if (!outgoing.destroyed) outgoing.destroy()
    })
  })
  outgoing.once('response', resolve)
  outgoing.on('error', (error) =>
    reject(failed instanceof Fault ? failed : unreachable(url, failed ?? error)),
  )
  outgoing.flushHeaders()
  try {
    const response = await promise
    if (response.statusCode !== 200) throw await refusal(response)
    return JSON.parse(await textOf(response)) as Uploaded
  } finally {
    outgoing.destroy()
  }
}
