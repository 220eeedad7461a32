// What has to be there before a server can run or be tested: an engine that answers and the images of the container
// types. Everything is left alone that is there already.
import { join } from 'node:path'
import type { Settings } from '../../../internal/config/load.ts'
import { ensureEngine } from './engine.ts'
import { ensureImages } from './images.ts'
import type { Progress } from './progress.ts'
import { engineOf } from './runtime.ts'

type Options = {
  /** Further container types that are wanted. */
  also?: string[]
  /** Where an engine that is started here writes its log. */
  logs?: string
}

export async function setUp(
  settings: Settings,
  progress: Progress,
  { also = [], logs = join(settings.home, 'logs') }: Options = {},
): Promise<void> {
  // Set-up makes images only, and those belong to no instance.
  const runtime = await engineOf(settings, 'set-up')
  try {
    await ensureEngine(runtime, { logs, docker_host: settings.docker_host }, progress)
    const wanted = new Set(['base', settings.config.default_container_type, ...also])
    await ensureImages(runtime, [...wanted], progress)
  } finally {
    progress.end()
  }
}
