// Builds container types, base types first. One build of a type runs at a time: concurrent callers share it and its progress,
// and it is cancelled when the last of them leaves.
import { createHash } from 'node:crypto'
import { buffer } from 'node:stream/consumers'
import { pack } from 'tar-stream'
import { Fault, messageOf } from '../../fault.ts'
import type { Log } from '../../log.ts'
import type { BuildProgress, BuildReport, ImageState, Runtime } from '../runtime.ts'
import { ensureBase } from './base.ts'
import type { EngineImage, ImageEngine } from './engine.ts'
import { hostBuildArguments, hostCertificates, needsHostNetwork } from './host.ts'
import type { ContainerType, ContextFile, Images } from './images.ts'
import { followReports } from './progress.ts'
import { createBaseSteps, stepOf, stepsIn } from './steps.ts'

type Running = {
  done: Promise<ImageState>
  listeners: Set<BuildProgress>
  /** For a caller that joins. */
  last: BuildReport | undefined
  no_cache: boolean
  callers: number
  controller: AbortController
}

/** A build without a report for this long is cancelled. */
const stallMs = 30 * 60_000

function detectStall(ms: number, signal: AbortSignal) {
  const stalled = new AbortController()
  const onStall = () =>
    stalled.abort(
      new Fault('unavailable', `the container engine reported no build progress for ${ms / 60_000} min`),
    )
  let timer = setTimeout(onStall, ms)
  return {
    signal: AbortSignal.any([signal, stalled.signal]),
    onReport: () => {
      clearTimeout(timer)
      timer = setTimeout(onStall, ms)
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
  engine: ImageEngine
  images: Images
  images_dir: string
  log: Log
}): Runtime['build'] {
  const { engine, images, log } = context
  const running = new Map<string, Running>()
  // Identifies the checkout that built an image: it removes only images that it built itself.
  const origin = createHash('sha256').update(context.images_dir).digest('hex').slice(0, 16)

  async function make(type: ContainerType, no_cache: boolean, progress: BuildProgress, signal: AbortSignal) {
    const dockerfile = type.files.find(({ path }) => path === 'Dockerfile')!.data.toString()
    let at = { step: 1, of: stepsIn(dockerfile) }
    /** Steps of base images that were built before. */
    let before = 0
    const base = await ensureParent(type, signal, (report) => {
      before = report.total
      progress({ ...report, total: report.total + at.of })
    })
    const step = `building image ${type.type}`
    const onLine = (line: string) => {
      at = stepOf(line) ?? at
      const named = `${step}: step ${at.step} of ${at.of}`
      progress({ line, step: named, done: before + at.step - 1, total: before + at.of })
    }
    progress({
      line: `building ${type.reference} on ${base}`,
      step,
      done: before,
      total: before + at.of,
    })
    const certificates = { path: 'host-ca.crt', data: await hostCertificates(), executable: false }
    const archive = await archiveContext([...type.files, certificates])
    using stall = detectStall(stallMs, signal)
    const stream = await engine.build(archive, {
      reference: type.reference,
      arguments: { ...hostBuildArguments(), BASE: base },
      labels: { 'oubliette.type': type.type, 'oubliette.origin': origin },
      host_network: needsHostNetwork(),
      no_cache,
      signal: stall.signal,
    })
    await followReports(stream, `build of images/${type.type}`, onLine, stall.onReport)
    await removeSuperseded(type)
    return await images.state(type)
  }

  /** The reference of the image that the type is based on. */
  async function ensureParent(
    { base }: ContainerType,
    signal: AbortSignal,
    progress: BuildProgress,
  ): Promise<string> {
    if ('type' in base) return (await build(base.type, { progress, signal })).reference
    const steps = createBaseSteps(base.image)
    return await ensureBase(engine, base.image, { signal, progress: (line) => progress(steps(line)) })
  }

  async function removeSuperseded(type: ContainerType): Promise<void> {
    const label = [`oubliette.type=${type.type}`, `oubliette.origin=${origin}`]
    for (const image of await engine.list(label))
      if (!image.tags.includes(type.reference)) await removeUnused(image)
  }

  async function removeUnused({ id, tags }: EngineImage): Promise<void> {
    try {
      // An image in use is removed after a later build.
      await engine.remove(tags[0] ?? id)
    } catch (error) {
      log.warn('failed to remove a superseded image', { image: id, error })
    }
  }

  function begin(type: ContainerType, no_cache: boolean): Running {
    const controller = new AbortController()
    const listeners = new Set<BuildProgress>()
    const progress: BuildProgress = (report) => {
      entry.last = report
      for (const listener of listeners) listener(report)
    }
    const { promise: done, resolve } = Promise.withResolvers<ImageState>()
    const entry: Running = { done, listeners, last: undefined, no_cache, callers: 0, controller }
    running.set(type.reference, entry)
    resolve(
      make(type, no_cache, progress, controller.signal).finally(() => {
        if (running.get(type.reference) === entry) running.delete(type.reference)
      }),
    )
    return entry
  }

  /** Settles when no build with the cache is running, which a build without it cannot share. */
  async function cachedBuild({ reference }: ContainerType): Promise<void> {
    const entry = running.get(reference)
    if (entry && !entry.no_cache) await entry.done.catch(() => undefined)
  }

  const build: Runtime['build'] = async (name, { no_cache = false, progress, signal }) => {
    signal?.throwIfAborted()
    const type = await images.find(name)
    if (!type)
      throw new Fault('invalid', `no container type "${name}"`, { hint: 'project options lists the types' })
    if (no_cache) await cachedBuild(type)
    else if (!running.has(type.reference)) {
      const state = await images.state(type)
      if (state.built) return { ...state, rebuilt: false }
    }
    const entry = running.get(type.reference) ?? begin(type, no_cache)
    entry.callers++
    if (progress) entry.listeners.add(progress)
    if (progress && entry.last) progress(entry.last)
    const left = Promise.withResolvers<never>()
    const leave = () => left.reject(new Fault('timeout', `cancelled while images/${name} was being built`))
    signal?.addEventListener('abort', leave, { once: true })
    try {
      return { ...(await Promise.race([entry.done, left.promise])), rebuilt: true }
    } finally {
      signal?.removeEventListener('abort', leave)
      if (progress) entry.listeners.delete(progress)
      entry.callers--
      if (entry.callers === 0 && running.get(type.reference) === entry) {
        // Not shared any more: a caller that comes now starts another build.
        running.delete(type.reference)
        entry.controller.abort()
        // The last caller has left.
        entry.done.catch((error: unknown) => log.debug('build cancelled', { reason: messageOf(error) }))
      }
    }
  }
  return build
}
