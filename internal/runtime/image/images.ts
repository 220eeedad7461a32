// Container types: the folders of `images/`. A type's image is tagged with a hash of its folder and of its base image, so a
// second start builds nothing, a changed Dockerfile gives another image, and a running container keeps its own.
import { createHash } from 'node:crypto'
import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { Fault } from '../../fault.ts'
import type { ImageState } from '../runtime.ts'
import type { ImageEngine } from './engine.ts'

/** A file of a build context. */
export type ContextFile = { path: string; data: Buffer; executable: boolean }

export type ContainerType = {
  type: string
  reference: string
  files: ContextFile[]
  /** Another container type, or an external image. */
  base: { type: string } | { image: string }
}

const typePattern = /^[a-z][a-z0-9-]{0,31}$/
/** A reference becomes part of a path of the engine's API, so it must not contain anything else. */
const referencePattern = /^(?!.*(?:\.\.|\/\/))[a-zA-Z0-9][a-zA-Z0-9._/:@-]{0,254}$/

export type Images = {
  find(type: string): Promise<ContainerType | undefined>
  state(type: ContainerType): Promise<ImageState>
  list(): Promise<ImageState[]>
  resolve(type_or_reference: string): Promise<string | undefined>
  basesOf(type: string): Promise<string[] | undefined>
}

/** The base image of a Dockerfile: the default value of its `ARG BASE`. */
export function parseBase(dockerfile: string): ContainerType['base'] | undefined {
  const value = /^\s*ARG\s+BASE=["']?([^\s"']+)/im.exec(dockerfile)?.[1]
  if (!value) return undefined
  const own = /^oubliette\/([a-z0-9-]+)(?::|$)/.exec(value)?.[1]
  return own ? { type: own } : { image: value }
}

async function readFolder(folder: string, prefix = ''): Promise<ContextFile[]> {
  const names = (await readdir(join(folder, prefix))).sort()
  const nested = await Promise.all(
    names.map(async (name) => {
      const path = prefix ? `${prefix}/${name}` : name
      const info = await stat(join(folder, path))
      if (info.isDirectory()) return await readFolder(folder, path)
      return [{ path, data: await readFile(join(folder, path)), executable: (info.mode & 0o111) !== 0 }]
    }),
  )
  return nested.flat()
}

export function createImages(engine: ImageEngine, images_dir: string): Images {
  async function find(type: string, above: string[] = []): Promise<ContainerType | undefined> {
    if (!typePattern.test(type)) return undefined
    const files = await readFolder(join(images_dir, type)).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return undefined
      throw error
    })
    const dockerfile = files?.find(({ path }) => path === 'Dockerfile')
    if (!files || !dockerfile) return undefined
    const base = parseBase(dockerfile.data.toString())
    if (!base) throw new Fault('invalid', `images/${type}/Dockerfile has no line "ARG BASE=<image>"`)
    if (above.includes(type))
      throw new Fault('invalid', `images/${type} is based on itself (${[...above, type].join(' → ')})`)
    const parent = 'type' in base ? await find(base.type, [...above, type]) : undefined
    if ('type' in base && !parent)
      throw new Fault('invalid', `images/${type} is based on images/${base.type}, which does not exist`)
    const hash = createHash('sha256').update('image' in base ? base.image : parent!.reference)
    for (const { path, data, executable } of files)
      hash.update(`\0${path}\0${executable}\0${data.length}\0`).update(data)
    return { type, reference: `oubliette/${type}:${hash.digest('hex').slice(0, 16)}`, files, base }
  }

  async function state({ type, reference }: ContainerType): Promise<ImageState> {
    const found = await engine.inspect(reference)
    return {
      type,
      reference,
      built: found !== undefined,
      size_bytes: found?.size_bytes ?? null,
      created_at: found?.created_at ?? null,
    }
  }

  async function basesOf(name: string): Promise<string[] | undefined> {
    const type = await find(name)
    if (!type) return undefined
    return 'type' in type.base ? [type.base.type, ...((await basesOf(type.base.type)) ?? [])] : []
  }

  return {
    find: (type) => find(type),
    state,
    basesOf,
    async list() {
      const folders = await readdir(images_dir, { withFileTypes: true })
      const names = folders.filter((entry) => entry.isDirectory()).map((entry) => entry.name)
      const types = await Promise.all(names.sort().map((name) => find(name)))
      return await Promise.all(types.filter((type) => type !== undefined).map(state))
    },
    async resolve(name) {
      const type = await find(name)
      if (type) return (await state(type)).built ? type.reference : undefined
      if (!referencePattern.test(name)) return undefined
      return (await engine.inspect(name)) ? name : undefined
    },
  }
}
