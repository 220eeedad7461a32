// Commands that call a running server load no schema library and no MCP SDK: these take longer than the whole command may.
import { readFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { expect, it } from 'vitest'
import { importsOf } from './imports.ts'

const checkout = resolve(import.meta.dirname, '../../..')
const slow = /^(zod|@modelcontextprotocol\/|hono|pg|kysely|dockerode)/

/** The files that a file loads at once, with their libraries. A dynamic import loads only when it is reached. */
function loadedBy(file: string, seen = new Set<string>()): Set<string> {
  if (seen.has(file)) return seen
  seen.add(file)
  const source = readFileSync(join(checkout, file), 'utf8')
    .replaceAll(/\bimport\((?:'[^']*'|"[^"]*")\)/g, '')
    .replaceAll(/import type [^;\n]*/g, '')
  for (const to of importsOf(source)) {
    if (to.startsWith('.')) loadedBy(join(dirname(file), to), seen)
    else seen.add(to)
  }
  return seen
}

it.each(['run/run.ts', 'sessions/chat.ts', 'sessions/ps.ts', 'tool-command/command.ts'])(
  '%s is fast to load',
  (file) => {
    const loaded = loadedBy(`cmd/oubliette-server/${file}`)
    expect(loaded.size).toBeGreaterThan(10)
    expect([...loaded].filter((name) => slow.test(name))).toEqual([])
  },
)

it('a command that loads them is found', () => {
  expect([...loadedBy('cmd/oubliette-server/daemon/serve.ts')].filter((name) => slow.test(name))).not.toEqual(
    [],
  )
})
