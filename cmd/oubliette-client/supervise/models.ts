// Connects droids to the model proxy: a listener on the container's loopback whose connections are forwarded, byte for byte, to
// the server's socket. Nothing is parsed or stored here, so it works without a network and with any provider; the server has
// the keys and the rules.
import { once } from 'node:events'
import { type AddressInfo, createConnection, createServer, type Socket } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import type { Log } from '../../../internal/log.ts'
import { modelsPort } from '../../../internal/protocol/wire.ts'

const firstPauseMs = 20
const maxPauseMs = 500
const probeMs = 5000
/** How long a droid's connection waits for the server, which may be restarting. */
const connectMs = 60_000

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
  const until = performance.now() + connectMs
  for (let pause_ms = firstPauseMs; !droid.destroyed; pause_ms = Math.min(pause_ms * 2, maxPauseMs)) {
    const server = await connect(path)
    if (server || performance.now() > until) return server
    await delay(pause_ms)
  }
  return undefined
}

/** A process that is being killed may still accept a connection, but sends nothing. */
async function answers(path: string): Promise<boolean> {
  const server = await connect(path)
  if (!server) return false
  const answered = new Promise<boolean>((resolve) => {
    server.once('data', () => resolve(true))
    server.once('close', () => resolve(false))
    server.once('error', () => resolve(false))
    server.setTimeout(probeMs, () => resolve(false))
  })
  server.write('HEAD / HTTP/1.1\r\nHost: models\r\nConnection: close\r\n\r\n')
  const alive = await answered
  server.destroy()
  return alive
}

/**
 * A broken connection must not look like an orderly close to the other side. A killed server closes its connections just like
 * one that has sent its whole answer; the difference is whether it still answers. Agents retry requests whose connection was
 * reset, but not always those whose answer was cut short.
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
    // In use, when several supervisors run outside of containers. Droids get the address, so any port works.
    log.debug('the default port of the model listener is in use', { error })
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
