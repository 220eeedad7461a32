// The external base image of a container type: the one in the engine, or the registry's, or (for Debian) one that is built
// locally. A registry that does not answer delays the build by a few seconds only.
import { Fault } from '../../fault.ts'
import type { ImageEngine } from './engine.ts'
import { followReports, type LineProgress } from './progress.ts'
import { findRootfs } from './rootfs.ts'

type Options = { progress: LineProgress; signal: AbortSignal }

const registryAnswerMs = 6_000
const registryStallMs = 30_000
const repository = 'oubliette-rootfs'

/** The reference to use as the base of a build. */
export async function ensureBase(engine: ImageEngine, reference: string, options: Options): Promise<string> {
  if (await exists(engine, reference)) return reference
  // Only Debian's own image can be rebuilt from Debian's packages.
  const rootfs = /^(?:docker\.io\/)?(?:library\/)?debian(?::|$)/.test(reference)
    ? await findRootfs()
    : undefined
  const made = rootfs && `${repository}:${rootfs.codename}`
  if (made && (await exists(engine, made))) return made

  const refusal = await pull(engine, reference, options)
  if (refusal === undefined) return reference
  options.signal.throwIfAborted()
  options.progress(`failed to pull ${reference}: ${refusal}`)
  if (!rootfs || !made)
    throw new Fault(
      'unavailable',
      `base image ${reference} is not in the engine and cannot be pulled: ${refusal}`,
      {
        hint: 'load the image into the engine with docker load, then retry',
      },
    )
  // An interrupted import must not be found under the final name.
  const unfinished = `${repository}:unfinished`
  await rootfs.tar(options, async (tar) => {
    const loading = await engine.load(tar, { repository, tag: 'unfinished' }, options.signal)
    await followReports(loading, 'import of the base image', options.progress)
  })
  await engine.tag(unfinished, { repository, tag: rootfs.codename })
  await engine.remove(unfinished)
  return made
}

const exists = async (engine: ImageEngine, reference: string): Promise<boolean> =>
  (await engine.inspect(reference)) !== undefined

/** Why the pull failed; undefined if it succeeded. */
async function pull(engine: ImageEngine, reference: string, options: Options): Promise<string | undefined> {
  const stalled = new AbortController()
  // The engine sends nothing at all until the registry has answered.
  let timer = setTimeout(() => stalled.abort(), registryAnswerMs)
  const onReport = () => {
    clearTimeout(timer)
    timer = setTimeout(() => stalled.abort(), registryStallMs)
  }
  try {
    const stream = await engine.pull(reference, AbortSignal.any([options.signal, stalled.signal]))
    await followReports(stream, `pull of ${reference}`, options.progress, onReport)
    return undefined
  } catch (error) {
    return stalled.signal.aborted ? 'the registry does not answer' : engine.reasonOf(error)
  } finally {
    clearTimeout(timer)
  }
}
