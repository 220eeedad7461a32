// The image that a container type stands on when that is none of ours: the one in the engine, else the registry's,
// else (for Debian) one made on the spot. A registry that does not answer costs a few seconds and nothing more.
import type Docker from 'dockerode'
import { Fault } from '../../fault.ts'
import { reasonOf, unlessMissing } from '../docker/errors.ts'
import type { BuildProgress } from '../runtime.ts'
import { followReports } from './progress.ts'
import { findRootfs } from './rootfs.ts'

type Options = { progress: BuildProgress; signal: AbortSignal }

const registryAnswerMs = 6_000
const registryStallMs = 30_000
const repository = 'oubliette-rootfs'

/** A reference that builds can stand on. */
export async function ensureBase(docker: Docker, reference: string, options: Options): Promise<string> {
  if (await exists(docker, reference)) return reference
  // Only Debian's own image can be replaced by Debian's packages.
  const rootfs = /^(?:docker\.io\/)?(?:library\/)?debian(?::|$)/.test(reference)
    ? await findRootfs()
    : undefined
  const made = rootfs && `${repository}:${rootfs.codename}`
  if (made && (await exists(docker, made))) return made

  const refusal = await pull(docker, reference, options)
  if (refusal === undefined) return reference
  options.signal.throwIfAborted()
  options.progress(`${reference} cannot be pulled: ${refusal}`)
  if (!rootfs || !made)
    throw new Fault(
      'unavailable',
      `base image ${reference} is not in the engine and cannot be pulled: ${refusal}`,
      {
        hint: 'load it into the engine by hand (docker load), then build again',
      },
    )
  // What is cut short while it is made must not be found under the name that means it is whole.
  const unfinished = `${repository}:unfinished`
  await rootfs.tar(options, async (tar) => {
    const target = { repo: repository, tag: 'unfinished', abortSignal: options.signal }
    await followReports(await docker.importImage(tar, target), 'importing the base image', options.progress)
  })
  await docker.getImage(unfinished).tag({ repo: repository, tag: rootfs.codename })
  await unlessMissing(docker.getImage(unfinished).remove())
  return made
}

const exists = async (docker: Docker, reference: string): Promise<boolean> =>
  (await unlessMissing(docker.getImage(reference).inspect())) !== undefined

/** Why it could not be had, or undefined when it is there. */
async function pull(docker: Docker, reference: string, options: Options): Promise<string | undefined> {
  const silence = new AbortController()
  // The engine sends nothing at all until the registry has answered.
  let timer = setTimeout(() => silence.abort(), registryAnswerMs)
  const heard = () => {
    clearTimeout(timer)
    timer = setTimeout(() => silence.abort(), registryStallMs)
  }
  try {
    const stream = await docker.pull(reference, {
      abortSignal: AbortSignal.any([options.signal, silence.signal]),
    })
    await followReports(stream, `pulling ${reference}`, options.progress, heard)
    return undefined
  } catch (error) {
    return silence.signal.aborted ? 'the registry does not answer' : reasonOf(error)
  } finally {
    clearTimeout(timer)
  }
}
