// Reads the output of detached commands in pages from the files of the supervisor. They are in the droid's home, which the
// container can write, so they are read like any other file of a container and their content is not trusted.

import { Fault } from '../../fault.ts'
import { readFile } from '../../files/files.ts'
import { wholeCharacters } from '../../lib/bounded-output.ts'
import type { ExecRow } from '../../store/rows/execs.ts'
import type { Owner } from '../container/user.ts'
import { containerPaths, type Layout } from '../workspace/layout.ts'

type Offsets = { stdout: number; stderr: number }
type Part = { bytes: Buffer; size: number; missing: boolean }
export type ReadOutput = ReturnType<typeof createReadOutput>

const directory = '.oubliette/execs'

export function createReadOutput({ layout, owner }: { layout: Layout; owner: Owner }) {
  async function part(row: ExecRow, stream: keyof Offsets, offset: number, max_bytes: number): Promise<Part> {
    const root = {
      host: layout.droidHome(row.project_id),
      inside: containerPaths.home,
      ...owner,
      protected_paths: [],
    }
    try {
      const path = `${directory}/${row.id}/${stream}`
      const { content, encoding, size_bytes } = await readFile(root, path, { offset, max_bytes })
      return { bytes: Buffer.from(content, encoding), size: size_bytes, missing: false }
    } catch (error) {
      // Nothing was written, it was removed to free space, or a droid replaced it.
      if (error instanceof Fault && ['not_found', 'invalid', 'conflict', 'forbidden'].includes(error.kind))
        return { bytes: Buffer.alloc(0), size: 0, missing: true }
      throw error
    }
  }

  return {
    offsetsOf(cursor: string | undefined): Offsets {
      const [, stdout, stderr] = /^(\d{1,15})\.(\d{1,15})$/.exec(cursor ?? '0.0') ?? []
      if (stdout === undefined)
        throw new Fault('invalid', 'cursor was not returned by exec_output', {
          hint: 'omit it to start from the beginning',
        })
      return { stdout: Number(stdout), stderr: Number(stderr) }
    },
    async read(row: ExecRow, offsets: Offsets, max_bytes: number) {
      const streams = ['stdout', 'stderr'] as const
      const parts = await Promise.all(streams.map((stream) => part(row, stream, offsets[stream], max_bytes)))
      const over = row.status !== 'running'
      const read = streams.map((stream, at) => {
        const { bytes, size, missing } = parts[at]!
        const all = offsets[stream] + bytes.length >= size
        const end = over && all ? bytes.length : wholeCharacters(bytes)
        const written = stream === 'stdout' ? row.stdout_bytes : row.stderr_bytes
        return {
          text: bytes.toString('utf8', 0, end),
          next: offsets[stream] + end,
          // A partial character is not a page.
          more: end > 0 && offsets[stream] + end < size,
          // While it runs, only its supervisor knows how much it has written.
          truncated: over && (written ?? 0) > size,
          gone: missing && (written ?? 0) > 0,
        }
      })
      const [stdout, stderr] = [read[0]!, read[1]!]
      return {
        stdout: stdout.text,
        stderr: stderr.text,
        next_cursor: `${stdout.next}.${stderr.next}`,
        more: read.some(({ more }) => more),
        truncated: read.some(({ truncated, gone }) => truncated || gone),
      }
    },
  }
}
