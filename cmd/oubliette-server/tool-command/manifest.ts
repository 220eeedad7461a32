// The tools as the command line needs them: names, descriptions and fields, without schemas and without code. The file is
// generated from the declarations by `./oubliette docs`; a test compares it. Reading it is much faster than loading the
// declarations with everything that they import.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Field } from './fields.ts'

export type ActionEntry = {
  about: string
  example: string
  /** The fields that words without a flag fill first, in this order. */
  positional: string[]
  fields: Field[]
}
export type ToolEntry = {
  name: string
  about: string
  /** Several actions, the first word after the tool. Otherwise one, under the name of the tool. */
  unified: boolean
  actions: Record<string, ActionEntry>
}
export type Manifest = Record<string, ToolEntry>

export const manifestFile = join(import.meta.dirname, 'manifest.json')

export const readManifest = (): Manifest => JSON.parse(readFileSync(manifestFile, 'utf8')) as Manifest

export const kebab = (name: string): string => name.replaceAll('_', '-')

/** What follows `./oubliette`. */
export const calledAs = (tool: Pick<ToolEntry, 'name' | 'unified'>, action: string): string =>
  tool.unified ? `${kebab(tool.name)} ${kebab(action)}` : kebab(tool.name)
