// Images on a Docker engine.
import { Readable } from 'node:stream'
import type Docker from 'dockerode'
import type { ImageEngine } from '../image/engine.ts'
import { isStatus, reasonOf, unlessMissing } from './errors.ts'

export function createImageEngine(docker: Docker): ImageEngine {
  return {
    async inspect(reference) {
      const found = await unlessMissing(docker.getImage(reference).inspect())
      return found && { size_bytes: found.Size, created_at: found.Created }
    },
    pull: async (reference, abortSignal) => (await docker.pull(reference, { abortSignal })) as Readable,
    async load(tar, { repository, tag }, abortSignal) {
      return (await docker.importImage(tar, { repo: repository, tag, abortSignal })) as Readable
    },
    async build(context, options) {
      const stream = await docker.buildImage(Readable.from([context]), {
        t: options.reference,
        buildargs: options.arguments,
        labels: options.labels,
        ...(options.host_network ? { networkmode: 'host' } : {}),
        nocache: options.no_cache,
        forcerm: true,
        abortSignal: options.signal,
      })
      return stream as Readable
    },
    async tag(reference, { repository, tag }) {
      await docker.getImage(reference).tag({ repo: repository, tag })
    },
    async remove(reference) {
      try {
        await docker.getImage(reference).remove()
        return 'removed'
      } catch (error) {
        if (isStatus(error, 404)) return 'missing'
        if (isStatus(error, 409)) return 'in_use'
        throw error
      }
    },
    async list(label) {
      const found = await docker.listImages({ filters: { label } })
      // An image whose tag has moved to another one is listed with a tag of that name.
      return found.map(({ Id, RepoTags }) => ({
        id: Id,
        tags: (RepoTags ?? []).filter((tag) => tag !== '<none>:<none>'),
      }))
    },
    reasonOf,
  }
}
