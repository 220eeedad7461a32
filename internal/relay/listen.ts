// One listening Unix socket in a directory of its own, which is mounted into one container. The socket never exists at its path
// with the wrong owner or mode: it is bound under another name, its owner and mode are set, and then it is renamed.
import { randomBytes, timingSafeEqual } from 'node:crypto'
import { chmod, chown, mkdir, open, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { createServer, type Server, type Socket } from 'node:net'
import { join } from 'node:path'
import { Fault, messageOf } from '../fault.ts'
import { isRoot } from '../lib/is-root.ts'
import { places } from '../protocol/wire.ts'

export type ListenOptions = {
  directory: string
  uid: number
  gid: number
  on_connection(socket: Socket): void
  on_error(error: Error): void
}
export type Listener = {
  readonly path: string
  proves(proof: string): boolean
  /** Whether the socket and the proof still exist and were not replaced. */
  isThere(): Promise<boolean>
  close(): Promise<void>
}

/** `sun_path` has 108 bytes, the last of them zero. */
const pathBytes = 107

function bind(server: Server, path: string): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  server.once('error', reject)
  // The socket is created within this call, so no connection is possible before its mode is set.
  const mask = process.umask(0o077)
  try {
    server.listen(path, () => {
      server.off('error', reject)
      resolve()
    })
  } finally {
    process.umask(mask)
  }
  return promise
}

async function ownedBy(path: string, mode: number, uid: number, gid: number): Promise<void> {
  await chmod(path, mode)
  // Without privilege the container runs as our own user, and there is nothing to hand over.
  if (isRoot()) await chown(path, uid, gid)
}

async function proofIn(file: string, uid: number, gid: number): Promise<Buffer> {
  const kept = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return ''
    throw error
  })
  if (/^[0-9a-f]{64}$/.test(kept)) return Buffer.from(kept)
  const made = randomBytes(32).toString('hex')
  await writeFile(`${file}.new`, made, { mode: 0o400 })
  await ownedBy(`${file}.new`, 0o400, uid, gid)
  await rename(`${file}.new`, file)
  return Buffer.from(made)
}

const isFile = (path: string): Promise<boolean> =>
  stat(path).then(
    (found) => found.isFile(),
    () => false,
  )

export async function listen(options: ListenOptions): Promise<Listener> {
  const { directory, uid, gid } = options
  const path = join(directory, places.socket)
  const server = createServer(options.on_connection)
  let handle: Awaited<ReturnType<typeof open>> | undefined
  try {
    await mkdir(directory, { recursive: true })
    await chmod(directory, 0o755)
    const proof = await proofIn(join(directory, places.proof), uid, gid)
    const fresh = `${path}.new`
    await rm(fresh, { force: true })
    // A long path is reached through an open directory, whose own name is short.
    handle = await open(directory)
    const short = `/proc/self/fd/${handle.fd}/${places.socket}.new`
    await bind(server, Buffer.byteLength(fresh) > pathBytes ? short : fresh)
    await ownedBy(fresh, 0o600, uid, gid)
    await rename(fresh, path)
    const { ino } = await stat(path)
    server.on('error', options.on_error)
    return {
      path,
      proves: (claimed) => {
        const bytes = Buffer.from(claimed)
        return bytes.length === proof.length && timingSafeEqual(bytes, proof)
      },
      isThere: async () => {
        const found = await stat(path).catch(() => undefined)
        return found?.ino === ino && (await isFile(join(directory, places.proof)))
      },
      async close() {
        await new Promise<void>((resolve) => server.close(() => resolve()))
        // A successor may have put its own socket here meanwhile.
        const now = await stat(path).catch(() => undefined)
        if (now?.ino === ino) await rm(path, { force: true })
      },
    }
  } catch (error) {
    server.close()
    throw new Fault('unavailable', `cannot listen on ${path}: ${messageOf(error)}`, { cause: error })
  } finally {
    await handle?.close()
  }
}
