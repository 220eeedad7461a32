import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { ImageEngine } from './engine.ts'
import { createImages, parseBase } from './images.ts'

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'oubliette-images-'))
})
afterEach(() => rm(folder, { recursive: true }))

const write = async (type: string, dockerfile: string) => {
  await mkdir(join(folder, type), { recursive: true })
  await writeFile(join(folder, type, 'Dockerfile'), dockerfile)
}
// Finding a type does not call the engine.
const find = (type: string) => createImages({} as ImageEngine, folder).find(type)

describe('container types', () => {
  it('name their base image in their Dockerfile', () => {
    expect(parseBase('# x\nARG BASE=debian:bookworm-slim\nFROM $BASE\n')).toEqual({
      image: 'debian:bookworm-slim',
    })
    expect(parseBase('ARG BASE="oubliette/base:latest"\nFROM $BASE')).toEqual({ type: 'base' })
    expect(parseBase('FROM scratch')).toBeUndefined()
  })

  it('have another reference when they change, or when their base does', async () => {
    await write('base', 'ARG BASE=debian:bookworm-slim\n')
    await write('dev', 'ARG BASE=oubliette/base\n')
    const before = (await find('dev'))?.reference
    expect(before).toMatch(/^oubliette\/dev:[0-9a-f]{16}$/)
    expect((await find('dev'))?.reference).toBe(before)
    await write('base', 'ARG BASE=debian:bookworm-slim\nRUN true\n')
    expect((await find('dev'))?.reference).not.toBe(before)
  })

  it('are folders with a Dockerfile and nothing else', async () => {
    await mkdir(join(folder, 'empty'))
    expect(await find('empty')).toBeUndefined()
    expect(await find('none')).toBeUndefined()
    expect(await find('../etc')).toBeUndefined()
  })

  it('cannot be based on themselves or on a missing type', async () => {
    await write('a', 'ARG BASE=oubliette/b\n')
    await write('b', 'ARG BASE=oubliette/a\n')
    await write('c', 'ARG BASE=oubliette/none\n')
    await expect(find('a')).rejects.toThrow('is based on itself')
    await expect(find('c')).rejects.toThrow('does not exist')
  })
})
