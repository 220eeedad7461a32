// Pipes for the output of children. Node's own stdio pipes are sockets, and a script that writes to `/dev/stderr` cannot reopen
// a socket, so it would fail. Node cannot create anonymous pipes, so named ones are created in batches ahead of use and
// unlinked as soon as both ends are open.
import { type ChildProcess, execFile, type SpawnOptions, spawn } from 'node:child_process'
import { closeSync, constants, mkdirSync, mkdtempSync, openSync, rmSync, unlinkSync } from 'node:fs'
import { Socket } from 'node:net'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { promisify } from 'node:util'
import { lowerPriority } from '../../lib/process/processes.ts'

type OutputPipe = {
  /** Passed to the child, then closed here. */
  child_fd: number | 'pipe'
  reader: Socket | undefined
}

export interface PipeMaker {
  take(): Promise<OutputPipe>
  dispose(): void
}

const run = promisify(execFile)
const batch = 64

function openEnds(path: string): OutputPipe {
  const read_fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
  const child_fd = openSync(path, constants.O_WRONLY)
  unlinkSync(path)
  return { child_fd, reader: new Socket({ fd: read_fd, readable: true, writable: false }) }
}

export function createPipeMaker(directory: string, on_error: (error: unknown) => void): PipeMaker {
  mkdirSync(directory, { recursive: true, mode: 0o700 })
  const place = mkdtempSync(join(directory, 'pipes-'))
  const stock: string[] = []
  let count = 0
  let making: Promise<void> | undefined
  let unable = false

  async function make(): Promise<void> {
    const names = Array.from({ length: batch }, () => join(place, String(count++)))
    try {
      mkdirSync(place, { recursive: true, mode: 0o700 })
      await run('mkfifo', ['-m', '600', ...names])
      stock.push(...names)
    } catch (error) {
      // Without mkfifo, scripts run but cannot reopen /dev/stdout.
      unable = true
      on_error(error)
    }
  }
  const refill = () => {
    if (stock.length < batch / 4 && !unable)
      making ??= make().finally(() => {
        making = undefined
      })
    return making
  }
  void refill()

  return {
    async take() {
      for (;;) {
        while (stock.length === 0 && !unable) await refill()
        const path = stock.shift()
        void refill()
        if (path === undefined) return { child_fd: 'pipe', reader: undefined }
        try {
          return openEnds(path)
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
          // A droid has deleted its home and all prepared pipes with it.
          stock.length = 0
        }
      }
    },
    dispose() {
      rmSync(place, { recursive: true, force: true })
    },
  }
}

function closeChildEnd(pipe: OutputPipe | undefined): void {
  if (typeof pipe?.child_fd === 'number') closeSync(pipe.child_fd)
}

/** Spawns a child in its own process group with such pipes. `still` is checked just before the spawn. */
export async function spawnPiped(
  pipes: PipeMaker,
  command: string[],
  options: Pick<SpawnOptions, 'cwd' | 'env'> & { stdin: number | 'ignore'; still?: () => boolean },
): Promise<{ child: ChildProcess; stdout: Readable; stderr: Readable } | undefined> {
  const { stdin, still, ...rest } = options
  const [program, ...args] = command
  let out: OutputPipe | undefined
  let err: OutputPipe | undefined
  let spawned = false
  try {
    out = await pipes.take()
    err = await pipes.take()
    if (still?.() === false) return undefined
    const child = spawn(program!, args, {
      ...rest,
      stdio: [stdin, out.child_fd, err.child_fd],
      detached: true,
    })
    spawned = true
    lowerPriority(child)
    return { child, stdout: out.reader ?? child.stdout!, stderr: err.reader ?? child.stderr! }
  } finally {
    closeChildEnd(out)
    closeChildEnd(err)
    if (!spawned) {
      out?.reader?.destroy()
      err?.reader?.destroy()
    }
  }
}
