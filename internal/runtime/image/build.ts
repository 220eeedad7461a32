// Building container types, the ones below first. One build of a type runs at a time; callers that come while it does
// join it, hear the same progress from then on, and it is given up only when the last of them has gone.
import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import type Docker from 'dockerode'
import { pack } from 'tar-stream'
import { Fault, messageOf } from '../../fault.ts'
import type { Log } from '../../log.ts'
import { isStatus } from '../docker/errors.ts'
import { digest } from '../docker/names.ts'
import type { BuildProgress, ImageState, Runtime } from '../runtime.ts'
import { ensureBase } from './base.ts'
import { hostBuildArguments, hostCertificates, needsHostNetwork } from './host.ts'
import type { ContainerType, ContextFile, Images } from './images.ts'
import { followReports } from './progress.ts'

type Running = {
  done: Promise<ImageState>
  listeners: Set<BuildProgress>
  callers: number
  controller: AbortController
}

/** A build that says nothing for this long is given up. */
const silenceMs = 30 * 60_000

function createSilence(ms: number, signal: AbortSignal) {
  const silent = new AbortController()
  const giveUp = () =>
    silent.abort(
      new Fault('unavailable', `the container engine said nothing about the build for ${ms / 60_000} min`),
    )
  let timer = setTimeout(giveUp, ms)
  return {
    signal: AbortSignal.any([signal, silent.signal]),
    heard: () => {
      clearTimeout(timer)
      timer = setTimeout(giveUp, ms)
    },
    [Symbol.dispose]: () => clearTimeout(timer),
  }
}

/**
 * A build context as a tar archive. Times are zero and the owner is root, so that the same files give the same bytes and
 * the engine's build cache matches them.
 */
export async function archiveContext(files: ContextFile[]): Promise<Buffer> {
  const archive = pack()
  for (const { path, data, executable } of files) {
    const mode = executable ? 0o755 : 0o644
    archive.entry({ name: path, type: 'file', mode, mtime: new Date(0), uid: 0, gid: 0 }, data)
  }
  archive.finalize()
  return await buffer(archive)
}

export function createBuild(context: {
  docker: Docker
  images: Images
  images_dir: string
  log: Log
}): Runtime['build'] {
  const { docker, images, log } = context
  const running = new Map<string, Running>()
  // Which checkout an image came from: what it made earlier is its own to clear away.
  const origin = digest(context.images_dir).slice(0, 16)

  async function make(type: ContainerType, no_cache: boolean, progress: BuildProgress, signal: AbortSignal) {
    const base =
      'type' in type.base
        ? (await build(type.base.type, { progress, signal })).reference
        : await ensureBase(docker, type.base.image, { progress, signal })
    progress(`building ${type.reference} on ${base}`)
    const certificates = { path: 'host-ca.crt', data: await hostCertificates(), executable: false }
    const archive = await archiveContext([...type.files, certificates])
    using silence = createSilence(silenceMs, signal)
    const stream = await docker.buildImage(Readable.from([archive]), {
      t: type.reference,
      buildargs: { ...hostBuildArguments(), BASE: base },
      labels: { 'oubliette.type': type.type, 'oubliette.origin': origin },
      ...(needsHostNetwork() ? { networkmode: 'host' } : {}),
      nocache: no_cache,
      forcerm: true,
      abortSignal: silence.signal,
    })
    await followReports(stream, `building images/${type.type}`, progress, silence.heard)
    await clearSuperseded(type)
    return await images.state(type)
  }

  async function clearSuperseded(type: ContainerType): Promise<void> {
    const label = [`oubliette.type=${type.type}`, `oubliette.origin=${origin}`]
    for (const image of await docker.listImages({ filters: { label } })) {
      // An image whose tag has moved on is listed with a tag of that name.
      const tags = (image.RepoTags ?? []).filter((tag) => tag !== '<none>:<none>')
      if (tags.includes(type.reference)) continue
      try {
        await docker.getImage(tags[0] ?? image.Id).remove()
      } catch (error) {
        // A container still runs on it, or another image stands on it: the next build asks again.
        if (!isStatus(error, 404, 409))
          log.warn('cannot remove a superseded image', { image: image.Id, error })
      }
    }
  }

  function begin(type: ContainerType, no_cache: boolean): Running {
    const controller = new AbortController()
    const listeners = new Set<BuildProgress>()
    const progress: BuildProgress = (line) => {
      for (const listener of listeners) listener(line)
    }
    const done = make(type, no_cache, progress, controller.signal).finally(() =>
      running.delete(type.reference),
    )
    const entry = { done, listeners, callers: 0, controller }
    running.set(type.reference, entry)
    return entry
  }

  const build: Runtime['build'] = async (name, { no_cache = false, progress, signal }) => {
    signal?.throwIfAborted()
    const type = await images.find(name)
    if (!type)
      throw new Fault('not_found', `no container type "${name}"`, { hint: 'project options lists the types' })
    if (!no_cache && !running.has(type.reference)) {
      const state = await images.state(type)
      if (state.built) return state
    }
    const entry = running.get(type.reference) ?? begin(type, no_cache)
    entry.callers++
    if (progress) entry.listeners.add(progress)
    const left = Promise.withResolvers<never>()
    const leave = () => left.reject(new Fault('timeout', `waiting for images/${name} to build was given up`))
    signal?.addEventListener('abort', leave, { once: true })
    try {
      return await Promise.race([entry.done, left.promise])
    } finally {
      signal?.removeEventListener('abort', leave)
      if (progress) entry.listeners.delete(progress)
      entry.callers--
      if (entry.callers === 0 && running.get(type.reference) === entry) {
        entry.controller.abort()
        // Nobody waits for it any more.
        entry.done.catch((error: unknown) => log.debug('a build was given up', { reason: messageOf(error) }))
      }
    }
  }
  return build
}
