// The generated documents match the declarations, and every document names files that exist.
import { existsSync, globSync, readFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { tools } from '../../../internal/tools/declarations/index.ts'
import { renderDocs } from '../../../internal/tools/docs.ts'

const checkout = resolve(import.meta.dirname, '../../..')

it.each(Object.entries(renderDocs(tools)))('%s is up to date', (path, text) => {
  expect(readFileSync(join(checkout, path), 'utf8'), 'run ./oubliette docs').toBe(text)
})

it('every field of every input and every key of the config is described', () => {
  const inputs = Object.values(tools).flatMap((tool) =>
    Object.entries(tool.actions).flatMap(([name, action]) => {
      const { properties = {} } = z.toJSONSchema(action.input, { io: 'input', unrepresentable: 'any' })
      return Object.entries(properties).flatMap(([field, schema]) =>
        typeof schema === 'object' && schema.description ? [] : [`${tool.name}.${name}: ${field}`],
      )
    }),
  )
  const keys = renderDocs(tools)
    ['docs/configuration.md']!.split('\n')
    .filter((line) => line.endsWith('|  |'))
  expect([...inputs, ...keys]).toEqual([])
})

describe('paths in the documents', () => {
  const documents = globSync(['docs/**/*.md', 'README.md', 'CONTRIBUTING.md', 'SECURITY.md'], {
    cwd: checkout,
  }).map((name) => ({ name, text: withoutFences(readFileSync(join(checkout, name), 'utf8')) }))

  function withoutFences(text: string): string {
    return text.replace(/^```[\s\S]*?^```$/gm, '')
  }

  /** Paths of a home and of a container (`.oubliette/…`, `OUBLIETTE_HOME/…`, `~/…`, `/…`) are not in the checkout. */
  const isOfCheckout = (path: string) => !/^(\.oubliette|OUBLIETTE_HOME|~)?\//.test(path)
  const pathsIn = (text: string): string[] =>
    [...text.matchAll(/`((?:[\w.@*~-]+)?(?:\/[\w.@*-]+)+\.[a-z]+)`/g)]
      .map((match) => match[1]!)
      .filter(isOfCheckout)
  const linksIn = (text: string) =>
    [...text.matchAll(/\]\(([^)\s#]*)(?:#([^)\s]*))?\)/g)]
      .map(([, path = '', anchor]) => ({ path, anchor }))
      .filter(({ path }) => !/^[a-z]+:/.test(path))
  /** As GitHub names the headings of a document. */
  const anchorsIn = (text: string): string[] =>
    [...text.matchAll(/^#+ (.*)$/gm)].map((match) =>
      match[1]!
        .toLowerCase()
        .replace(/[^\p{L}\p{N}\s_-]/gu, '')
        .replaceAll(' ', '-'),
    )

  it('every path in backticks exists', () => {
    const found = documents.flatMap(({ name, text }) => pathsIn(text).map((path) => ({ name, path })))
    expect(found.length).toBeGreaterThan(50)
    const missing = found.filter(({ path }) => globSync(path, { cwd: checkout }).length === 0)
    expect(missing.map(({ name, path }) => `${name}: ${path}`)).toEqual([])
  })

  it('every relative link leads to a file, and to a heading of it', () => {
    const found = documents.flatMap(({ name, text }) => linksIn(text).map((link) => ({ name, ...link })))
    expect(found.length).toBeGreaterThan(20)
    const broken = found.filter(({ name, path, anchor }) => {
      const target = join(checkout, path === '' ? name : join(dirname(name), path))
      if (!existsSync(target)) return true
      return anchor !== undefined && !anchorsIn(readFileSync(target, 'utf8')).includes(anchor)
    })
    expect(broken.map(({ name, path, anchor }) => `${name}: ${path}#${anchor ?? ''}`)).toEqual([])
  })

  it('every promise in docs/security.md names suites that exist', () => {
    const text = readFileSync(join(checkout, 'docs/security.md'), 'utf8')
    const rows = [...text.matchAll(/^\|.*\| ((?:`[\w/-]+`(?:, )?)+) \|$/gm)].map((match) => match[1]!)
    const suites = rows.flatMap((row) => [...row.matchAll(/`([^`]+)`/g)].map((match) => match[1]!))
    expect(suites.length).toBeGreaterThan(20)
    const missing = suites.filter(
      (suite) => globSync(`test/{suites,integration}/${suite}.test.ts`, { cwd: checkout }).length === 0,
    )
    expect(missing).toEqual([])
  })

  it.each([
    ['`internal/a.ts`, `b.ts` and `/etc/c.conf`', ['internal/a.ts']],
    ['`docs/decisions/*.md`, `OUBLIETTE_HOME/lost/x.json`, `application/json`', ['docs/decisions/*.md']],
  ])('are found in %j', (text, paths) => {
    expect(pathsIn(text)).toEqual(paths)
  })
})
