// The matrix, cell by cell, through one door. A driver says how that door is asked; the table and what is expected of it
// are the same for all of them.
import { randomUUID } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import type { Kind } from '../../../internal/fault.ts'
import { boundaries } from '../../../internal/manager/project/boundaries.ts'
import { tools } from '../../../internal/tools/declarations/index.ts'
import { until } from '../wait.ts'
import { type Class, expected, listed, type Who } from './expected.ts'
import { type Args, fieldRows, rows } from './rows.ts'
import type { World } from './world.ts'

export type Answer = { outcome: 'ok' | Kind; message: string }
export type Driver = {
  /** As the audit names the door. */
  via: 'http' | 'socket'
  /** Those who can come to this door at all. */
  who: readonly Who[]
  call(who: Who, project_id: string, tool: string, args: Args): Promise<Answer>
  /** What is shown to them: the names of tools, and of their actions where there are any. */
  list(who: Who, project_id: string): Promise<Map<string, string[] | undefined>>
}

type Declared = { key: string; tool: string; action: string | undefined }
export const declared: Declared[] = Object.values(tools).flatMap((tool) =>
  Object.keys(tool.actions).map((name) =>
    tool.unified
      ? { key: `${tool.name}.${name}`, tool: tool.name, action: name }
      : { key: tool.name, tool: tool.name, action: undefined },
  ),
)

/** Ids of the same shape that do not exist. */
function strange(args: Args): { args: Args; plain(message: string): string } {
  const names = new Map<string, string>()
  const replace = (value: unknown) => {
    if (typeof value !== 'string') return value
    const other = /^[0-9a-f-]{36}$/.test(value)
      ? randomUUID()
      : /^(gogol|tok|apr|sch)_/.test(value)
        ? value.replace(/(?<=_.*)[0-9a-f]/g, (digit) => ((Number.parseInt(digit, 16) + 7) % 16).toString(16))
        : value
    if (other !== value) names.set(value, '<id>').set(other, '<id>')
    return other
  }
  return {
    args: Object.fromEntries(Object.entries(args).map(([name, value]) => [name, replace(value)])),
    plain: (message) => [...names].reduce((text, [id, name]) => text.replaceAll(id, name), message),
  }
}

export function runMatrix(start: () => { world: World; driver: Driver }, who: readonly Who[]): void {
  const counted = new Map<string, number>()
  const count = (key: string, outcome: string) =>
    counted.set(`${key} ${outcome}`, (counted.get(`${key} ${outcome}`) ?? 0) + 1)

  it('has a row for every action, and no row for what is not there', () => {
    expect(Object.keys(rows).sort()).toEqual(declared.map(({ key }) => key).sort())
  })

  const classFor = ({ class: usual, for_sessions }: { class: Class; for_sessions?: Class }) =>
    start().driver.via === 'socket' ? (for_sessions ?? usual) : usual

  it('has a row for every field of project.update, and one that loosens for every boundary', () => {
    const fields = Object.keys(tools.project!.actions.update!.input.shape).filter((it) => it !== 'project_id')
    expect(Object.keys(boundaries).sort()).toEqual(fields.sort())
    expect([...new Set(Object.values(fieldRows).map(({ field }) => field))].sort()).toEqual(fields)
    const loosened = Object.values(fieldRows).filter((row) => row.class === 'project boundary')
    const bounding = Object.entries(boundaries).filter(([, { by }]) => by !== 'project')
    expect([...new Set(loosened.map(({ field }) => field))].sort()).toEqual(bounding.map(([it]) => it).sort())
  })

  describe.each(Object.entries(fieldRows))('project.update of %s', (_, row) => {
    it.each(who)('as %s', async (one) => {
      const { world, driver } = start()
      const project_id = await world.project(row.before)
      const change = row.change(project_id)
      const args = { action: 'update', project_id, ...change }
      const answer = await driver.call(one, project_id, 'project', args)
      if (answer.outcome !== 'unauthenticated') count('project.update', answer.outcome)
      expect(answer).toMatchObject({ outcome: expected(classFor(row), one) })
      const now = await world.admin('project', { action: 'get', project_id })
      expect(now).toMatchObject(answer.outcome === 'ok' ? change : row.before)
    })
  })

  describe.each(declared.filter(({ key }) => rows[key]))('$key', ({ key, tool, action }) => {
    const row = rows[key]!
    const called = (args: Args) => (action === undefined ? args : { action, ...args })
    async function ask(one: Who, project_id: string, args: Args): Promise<Answer> {
      const answer = await start().driver.call(one, project_id, tool, called(args))
      if (answer.outcome !== 'unauthenticated') count(key, answer.outcome)
      if (answer.outcome === 'ok' && row.runs) count(row.runs, 'ok')
      return answer
    }

    it.each(who)('as %s', async (one) => {
      const { world } = start()
      const project_id = row.fresh ? await world.project() : world.project_id
      const answer = await ask(one, project_id, await row.input(project_id, world))
      expect(answer).toMatchObject({ outcome: expected(classFor(row), one) })
      if (answer.outcome !== 'ok') expect(answer.message).toMatch(/\S+ \S+/)
    })

    const isAboutProject = row.class.startsWith('project')
    const foreigners = who.filter((one) => expected(row.class, one) === 'not_found')
    it.runIf(isAboutProject).each(foreigners)(
      'cannot be told by %s from what does not exist',
      async (one) => {
        const { world } = start()
        const args = await row.input(world.project_id, world)
        const unknown = strange(args)
        const theirs = await ask(one, world.project_id, args)
        const nobodys = await ask(one, world.project_id, unknown.args)
        expect(nobodys.outcome).toBe('not_found')
        expect(unknown.plain(nobodys.message)).toBe(unknown.plain(theirs.message))
      },
    )
  })

  it.each(who.filter((one) => listed('global read', one)))(
    'shows %s exactly what it could ever use',
    async (one) => {
      const { world, driver } = start()
      const seen = await driver.list(one, world.project_id)
      const shown = [...seen].flatMap(
        ([tool, actions]) => actions?.map((name) => `${tool}.${name}`) ?? [tool],
      )
      const wanted = declared.filter(({ key }) => listed(rows[key]?.class as Class, one))
      expect(shown.sort()).toEqual(wanted.map(({ key }) => key).sort())
    },
  )

  it('wrote one audit row with the right outcome for every call', async () => {
    const { world, driver } = start()
    const same = async () => {
      const written = await world.audited(driver.via)
      return (
        written.size === counted.size && [...counted].every(([what, calls]) => written.get(what) === calls)
      )
    }
    // A read does not wait for its row.
    await until(same, { what: 'every call has its audit row' }).catch(async () => {
      expect(await world.audited(driver.via)).toEqual(counted)
    })
  })
}
