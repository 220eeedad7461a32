// In a fresh checkout, `npm ci` refuses a lock file that lacks an optional package. npm omits the packages of other
// platforms when the registry in use does not have them, so a lock file can be broken on other platforms only.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { checkout } from '../command.ts'

type Entry = {
  optionalDependencies?: Record<string, string>
  integrity?: string
  resolved?: string
  link?: boolean
}

const read = (file: string) =>
  (JSON.parse(readFileSync(join(checkout, file), 'utf8')) as { packages: Record<string, Entry> }).packages
const packages = read('package-lock.json')

test.each([
  ['package-lock.json', ['packages/client']],
  // Of the clients in the suites. It may lack packages of other platforms: nothing installs it in a fresh checkout.
  ['test/clients/package-lock.json', []],
])('every package of %s is pinned by its checksum, and none by an address', (file, folders) => {
  const packages = read(file)
  // Packages of this repository are folders of the checkout: a link, and the folder itself.
  const links = Object.values(packages).filter(({ link }) => link)
  const own = new Set(['', ...links.map(({ resolved }) => resolved)])
  expect(links.map(({ resolved }) => resolved)).toEqual(folders)
  const entries = Object.entries(packages).filter(([path, { link }]) => !own.has(path) && !link)
  expect(entries.length).toBeGreaterThan(100)
  expect(
    entries.filter(([, { integrity }]) => !/^sha512-/.test(integrity ?? '')).map(([path]) => path),
  ).toEqual([])
  expect(entries.filter(([, { resolved }]) => resolved !== undefined).map(([path]) => path)).toEqual([])
})

test('the lock file has every optional package of every platform', () => {
  const resolves = (from: string, name: string): boolean => {
    if (Object.hasOwn(packages, `${from ? `${from}/` : ''}node_modules/${name}`)) return true
    if (from === '') return false
    return resolves(from.slice(0, Math.max(0, from.lastIndexOf('/node_modules/'))), name)
  }
  const missing = Object.entries(packages).flatMap(([path, { optionalDependencies = {} }]) =>
    Object.entries(optionalDependencies)
      .filter(([name]) => !resolves(path, name))
      .map(([name, version]) => `${name}@${version}`),
  )
  expect(missing).toEqual([])
})
