// Builds the container types that are wanted and not there yet; a second start finds them and does nothing.
import { Fault } from '../../../internal/fault.ts'
import type { Runtime } from '../../../internal/runtime/runtime.ts'
import type { Progress } from './progress.ts'

export async function ensureImages(
  runtime: Pick<Runtime, 'images' | 'build'>,
  wanted: string[],
  progress: Progress,
): Promise<void> {
  const known = await runtime.images()
  for (const type of wanted) {
    const image = known.find((candidate) => candidate.type === type)
    if (!image)
      throw new Fault('not_found', `there is no container type "${type}"`, {
        hint: `one of ${known.map((candidate) => candidate.type).join(', ')}`,
      })
    if (image.built) continue
    progress.step(`building the image of container type "${type}" (once, a minute or two)…`)
    await runtime.build(type, { progress: (line) => progress.detail(line) })
    progress.end()
  }
}
