import { expect, test } from 'vitest'
import { hiddenTables, visibleTables } from '../../../internal/store/inspection/visible.ts'
import { cloneDatabase, query } from '../../harness/database.ts'

test('it is decided for every table whether read-only queries see it', async () => {
  const database = await cloneDatabase()
  try {
    const rows = await query<{ name: string }>(
      database.url,
      `select table_name as name from information_schema.tables where table_schema = 'public'`,
    )
    const decided = [...Object.keys(visibleTables), ...hiddenTables].sort()
    expect(rows.map(({ name }) => name).sort()).toEqual(decided)
  } finally {
    await database.drop()
  }
})

test('no visible column is named like a secret', async () => {
  const database = await cloneDatabase()
  try {
    const rows = await query<{ table: string; column: string }>(
      database.url,
      `select table_name as table, column_name as column from information_schema.columns where table_schema = 'public'`,
    )
    const suspicious = rows.filter(({ column }) => /hash|secret|password|encrypted|cipher/.test(column))
    expect(suspicious.length).toBeGreaterThan(0)
    const seen = suspicious.filter(
      ({ table, column }) => visibleTables[table] && !visibleTables[table].includes(column),
    )
    // Hashes of what a caller sent, for comparing repeated calls.
    expect(seen.map(({ table, column }) => `${table}.${column}`).sort()).toEqual([
      'approvals.arguments_hash',
      'containers.spec_hash',
      'projects.idempotency_hash',
      'sessions.idempotency_hash',
      'upstream_calls.arguments_hash',
    ])
  } finally {
    await database.drop()
  }
})
