// Prepares a machine for a server or for tests: a running engine and the images of the container types. Existing parts are
// not changed.
import { join } from 'node:path'
import type { Settings } from '../../../internal/config/load.ts'
import { Fault } from '../../../internal/fault.ts'
import type { Runtime } from '../../../internal/runtime/runtime.ts'
import { ensureEngine } from './engine.ts'
import type { Progress } from './progress.ts'
import { engineOf } from './runtime.ts'

type Options = {
  /** Additional container types. */
  also?: string[]
  /** Log directory of an engine that is started here. */
  logs?: string
}

/** Builds the images that do not exist yet. */
async function ensureImages(runtime: Runtime, wanted: Set<string>, progress: Progress): Promise<void> {
  const known = await runtime.images()
  for (const type of wanted) {
    const image = known.find((candidate) => candidate.type === type)
    if (!image)
      throw new Fault('not_found', `unknown container type "${type}"`, {
        hint: `container types: ${known.map((candidate) => candidate.type).join(', ')}`,
      })
    if (image.built) continue
    progress.step(`building the image of container type "${type}" (first run, one to two minutes)…`)
    await runtime.build(type, { progress: ({ line }) => progress.detail(line) })
    progress.end()
  }
}

export async function setUp(
  settings: Settings,
  progress: Progress,
  { also = [], logs = join(settings.home, 'logs') }: Options = {},
): Promise<void> {
  // Set-up creates images only, which belong to no instance.
  const runtime = await engineOf(settings, 'set-up')
  try {
    await ensureEngine(runtime, { logs, docker_host: settings.docker_host }, progress)
    await ensureImages(runtime, new Set(['base', settings.config.default_container_type, ...also]), progress)
  } finally {
    progress.end()
  }
}
