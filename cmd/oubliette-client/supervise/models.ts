// The way of droids to their models: a listener on the container's loopback whose connections are joined, byte for byte,
// with the server's socket. Nothing is understood here and nothing is kept, so it works without a network and with any
// provider; keys and rules are the server's.
import { once } from 'node:events'
import { type AddressInfo, createConnection, createServer, type Socket } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import type { Log } from '../../../internal/log.ts'
import { modelsPort } from '../../../internal/protocol/wire.ts'

const firstMs = 20
const longestMs = 500
const probeMs = 5000
/** A server that is started again is back within this; until then a droid's request simply takes longer. */
const patienceMs = 60_000

export type ModelsListener = { url: string; close(): void }

async function connect(path: string): Promise<Socket | undefined> {
  const server = createConnection({ path, allowHalfOpen: true })
  try {
    await once(server, 'connect')
    return server
  } catch {
    server.destroy()
    return undefined
  }
}

async function dial(path: string, droid: Socket): Promise<Socket | undefined> {
  const until = performance.now() + patienceMs
  for (let pause_ms = firstMs; !droid.destroyed; pause_ms = Math.min(pause_ms * 2, longestMs)) {
    const server = await connect(path)
    if (server || performance.now() > until) return server
    await delay(pause_ms)
  }
  return undefined
}

/** A process that is just being killed may still take a connection, but says nothing on it. */
async function answers(path: string): Promise<boolean> {
  const server = await connect(path)
  if (!server) return false
  const heard = new Promise<boolean>((resolve) => {
    server.once('data', () => resolve(true))
    server.once('close', () => resolve(false))
    server.once('error', () => resolve(false))
    server.setTimeout(probeMs, () => resolve(false))
  })
  server.write('HEAD / HTTP/1.1\r\nHost: models\r\nConnection: close\r\n\r\n')
  const alive = await heard
  server.destroy()
  return alive
}

/**
 * When one side breaks, the other must not take it for an orderly end. A server that was killed ends its connections just
 * like one that has said all it had to say; what tells them apart is whether it still answers. Agents try again what was
 * reset, and not always what was merely cut short.
 */
function join(path: string, droid: Socket, server: Socket): void {
  droid.pipe(server)
  server.pipe(droid, { end: false })
  droid.once('error', () => server.destroy())
  droid.once('close', () => server.destroy())
  server.once('error', () => droid.resetAndDestroy())
  server.once('close', () => !server.readableEnded && droid.resetAndDestroy())
  server.once('end', () => {
    void answers(path).then((alive) => {
      if (alive) droid.end()
      else droid.resetAndDestroy()
    })
  })
}

export async function listenForModels(path: string, log: Log): Promise<ModelsListener> {
  const open = new Set<Socket>()
  const server = createServer({ allowHalfOpen: true, noDelay: true, pauseOnConnect: true }, (droid) => {
    open.add(droid)
    droid.once('close', () => open.delete(droid))
    droid.on('error', () => droid.destroy())
    void dial(path, droid).then((to) => {
      if (!to || droid.destroyed) {
        to?.destroy()
        return droid.resetAndDestroy()
      }
      join(path, droid, to)
    })
  })
  const listen = async (on: number) => {
    server.listen(on, '127.0.0.1')
    await once(server, 'listening')
  }
  try {
    await listen(modelsPort)
  } catch (error) {
    // Taken: outside of a container, where others run too. Droids are told the address, so any other will do.
    log.debug('the usual port for models is taken', { error })
    await listen(0)
  }
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close() {
      server.close()
      for (const socket of open) socket.destroy()
    },
  }
}
