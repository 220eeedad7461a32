// Which actions were called in this run, by the audit of every server that was booted in it: the evidence of the coverage
// gate. A call that was refused at the door is none.
import { appendFile, readFile, rm } from 'node:fs/promises'
import { query } from './database.ts'

const refused = ['unauthenticated', 'forbidden', 'not_found', 'invalid']

/** Named by vitest.config.ts, once for the run; nothing is written outside of one. */
const file = () => process.env.OUBLIETTE_TEST_CALLS

export async function recordCalls(database_url: string): Promise<void> {
  const to = file()
  if (!to) return
  const rows = await query<{ tool: string; action: string }>(
    database_url,
    'select distinct tool, action from audit where outcome <> all ($1)',
    [refused],
  )
  await appendFile(to, rows.map(({ tool, action }) => `${tool} ${action}\n`).join(''))
}

/** Undefined when no server was stopped in this run. Forgets what it read. */
export async function takeCalls(): Promise<Set<string> | undefined> {
  const from = file()
  if (!from) return undefined
  try {
    return new Set((await readFile(from, 'utf8')).split('\n').filter(Boolean))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  } finally {
    await rm(from, { force: true })
  }
}
