// The runbook in docs/operations.md has an entry for everything that an operator can be shown: what /readyz names, the kinds of
// errors, the reasons of failed sessions, and the alerts. The lists come from the sources.
import { globSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { expect, it } from 'vitest'
import { kinds } from '../../../internal/fault.ts'

const checkout = resolve(import.meta.dirname, '../../..')
const read = (path: string) => readFileSync(join(checkout, path), 'utf8')
const runbook = read('docs/operations.md').split('\n## Runbook\n')[1]!.split('\n## ')[0]!

/** The first column of the table below a heading. */
function entriesOf(heading: string): string[] {
  const section = runbook.split(`\n### ${heading}\n`)[1]!.split('\n### ')[0]!
  const rows = [...section.matchAll(/^\| (.*?) \|/gm)].map(([, cell]) => cell!.replaceAll('`', ''))
  return rows.slice(1).filter((cell) => !cell.startsWith('---'))
}

it('has what /readyz can name', () => {
  const block = /readiness: \{\n([\s\S]*?)\n {4}\},/.exec(read('cmd/oubliette-server/daemon/serve.ts'))![1]!
  const names = [...block.matchAll(/^ {6}(\w+):/gm)].map(([, name]) => name!)
  expect(names).toContain('database')
  expect(entriesOf('Not ready')).toEqual(names)
})

it('has every kind of error', () => {
  expect(entriesOf('Errors')).toEqual([...kinds])
})

/** Where sessions fail: how many places a file has, and the entries for what they report. */
const places: Record<string, { count: number; entries: string[] }> = {
  'cmd/oubliette-client/supervise/session/session.ts': { count: 2, entries: ['container restarted'] },
  'internal/manager/composition/hosting.ts': {
    count: 2,
    entries: ['the container was stopped', 'the project uses … of disk'],
  },
  'internal/manager/container/reconcile.ts': {
    count: 3,
    entries: ['…; not restarted after … failed starts', 'an error of the engine or of an image'],
  },
  'internal/manager/container/supervision.ts': { count: 1, entries: ['the container lost the session'] },
  'internal/manager/container/unsupervised.ts': { count: 1, entries: ['the container is not running'] },
  'internal/manager/events/session-storage.ts': { count: 1, entries: ['stored …'] },
  'internal/manager/managers.ts': { count: 1, entries: ['the container ended with exit code …'] },
  'internal/manager/session/dispatch.ts': {
    count: 3,
    entries: ['a request that ended the server before', 'an error of the engine or of an image'],
  },
}
const failing =
  /\b(?:ends\.failAll|deps\.onGivenUp|await fail)\(|finish\('failed'|data: \{ status: 'failed', reason \}/g

it('has the reasons of every place where a session fails', () => {
  const files = globSync('{cmd/oubliette-client,internal/manager}/**/*.ts', { cwd: checkout })
  const found = files
    .filter((file) => !file.endsWith('.test.ts'))
    .map((file) => [file, read(file).match(failing)?.length ?? 0] as const)
    .filter(([, count]) => count > 0)
  const counts = Object.fromEntries(Object.entries(places).map(([file, { count }]) => [file, count]))
  expect(Object.fromEntries(found), 'add the reason to the runbook, then the place to this table').toEqual(
    counts,
  )
  const entries = entriesOf('Failed sessions')
  const missing = Object.values(places).flatMap((place) =>
    place.entries.filter((entry) => !entries.includes(entry)),
  )
  expect(missing).toEqual([])
})

/** Errors of one turn, after which the session goes on. */
const ofTurns = ['the container was restarted', 'the agent is not ready']

it('has every reason that is written in the sources', () => {
  const sources = [
    ...Object.keys(places),
    'internal/manager/container/ends.ts',
    'internal/droid/acp/acp.ts',
    'internal/protocol/wire.ts',
  ].map(read)
  const written = sources.flatMap((source) =>
    [
      ...source.matchAll(
        /['`]((?:the (?:container|supervisor|agent) (?:was|is|ended|lost|of|exited|produced)|failed to start the agent|container restarted)[^'`]*)['`]/g,
      ),
    ]
      .map(([, text]) => text!.replaceAll(/\$\{(?:[^{}]|\{[^{}]*\})*\}.*?(?=\s|$)/g, '…'))
      .filter((text) => !ofTurns.includes(text)),
  )
  expect(written.length).toBeGreaterThan(8)
  const entries = entriesOf('Failed sessions')
  const pattern = (entry: string) =>
    new RegExp(
      `^${entry
        .split('…')
        .map((part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&'))
        .join('.*')}$`,
    )
  expect(written.filter((text) => !entries.some((entry) => pattern(entry).test(text)))).toEqual([])
})

it('has every alert', () => {
  const alerts = [...read('docs/monitoring/alerts.yaml').matchAll(/- alert: (\w+)/g)].map(([, name]) => name!)
  expect(alerts.length).toBeGreaterThan(10)
  const listed = [...read('docs/operations.md').matchAll(/^\| `(Oubliette\w+)` \|/gm)].map(
    ([, name]) => name!,
  )
  expect(listed).toEqual(alerts)
})
