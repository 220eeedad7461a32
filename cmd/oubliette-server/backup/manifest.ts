// The format of a backup: a gzip-compressed tar archive. `format.json` comes first, so that every release recognizes the
// format. The data are streams of unknown length, so each is a sequence of entries `data/<stream>/<number>` of a bounded size.
// `manifest.json` comes last, with the length and SHA-256 of each stream: an archive without it is incomplete.
import { z } from 'zod'

export const format = 1
export const formatFile = 'format.json'
export const manifestFile = 'manifest.json'

export const formatSchema = z.object({
  format: z.int(),
  oubliette_version: z.string(),
  created_at: z.string(),
})

const safeName = z.string().regex(/^[A-Za-z0-9._-]{1,128}$/)

const stream = z.object({
  /** A table, a file of the home, or the directory of a project (a tar archive in itself). */
  kind: z.enum(['table', 'home', 'project']),
  name: safeName,
  bytes: z.int(),
  sha256: z.string(),
  columns: z.array(z.string()).optional(),
  rows: z.int().optional(),
})
export type StreamEntry = z.infer<typeof stream>

export const manifestSchema = formatSchema.extend({
  postgres_version: z.string(),
  migrations: z.array(z.string()),
  sequences: z.array(z.object({ name: z.string(), last_value: z.string(), is_called: z.boolean() })),
  has_workspaces: z.boolean(),
  streams: z.array(stream),
})
export type Manifest = z.infer<typeof manifestSchema>

export const streamPath = ({ kind, name }: Pick<StreamEntry, 'kind' | 'name'>): string => `${kind}/${name}`
