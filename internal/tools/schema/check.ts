// Validates values against schemas of tenants. Schemas whose check is linear are checked directly; all others on a thread with
// a deadline, tenants in turns. A schema that missed the deadline several times is refused for some time without being tried.
// Schemas share nothing except the cache, which is keyed by their text.
import { LRUCache } from 'lru-cache'
import { createWorkerPool, Refused, TooCostly } from '../../event-loop/worker-pool.ts'
import { Fault } from '../../fault.ts'
import type { SchemaCheck } from '../../manager/caller/tools.ts'
import { checkSchema, type Schema } from './limits.ts'
import { type Check, linearCheck } from './linear.ts'
import type { SchemaJob } from './worker.ts'

const deadlineMs = 250
const rememberBytes = 16 * 1024 * 1024
const strikes = 3
const refuseMs = 60_000

/** A schema within the limits, and its linear check if it has one. */
type Prepared = { text: string; linear: Check | undefined }
type Failing = { count: number; until: number }

export function createSchemaCheck(): SchemaCheck & { close(): Promise<void> } {
  const pool = createWorkerPool({
    what: 'checking a JSON schema',
    script: new URL('./worker.ts', import.meta.url),
    threads: 2,
    deadline_ms: deadlineMs,
    memory_mb: 128,
  })
  const known = new LRUCache<string, Prepared>({
    maxSize: rememberBytes,
    sizeCalculation: ({ text }) => text.length,
  })
  const prepared = new WeakMap<Schema, Prepared>()
  const failing = new LRUCache<string, Failing>({ max: 1_000 })

  function prepare(given: Schema): Prepared {
    const same = prepared.get(given)
    if (same) return same
    const { schema, text } = checkSchema(given)
    const made = known.get(text) ?? { text, linear: linearCheck(schema) }
    known.set(text, made)
    prepared.set(given, made)
    return made
  }

  function requireNotFailing(key: string): void {
    const failed = failing.get(key)
    if (!failed || failed.count < strikes) return
    if (failed.until < Date.now()) return void failing.delete(key)
    throw new Fault('exhausted', `the check took longer than ${deadlineMs} ms ${failed.count} times`, {
      hint: `simplify the patterns of the schema; it is tried again after ${refuseMs / 1000} s`,
    })
  }

  function strike(key: string): void {
    const count = (failing.get(key)?.count ?? 0) + 1
    failing.set(key, { count, until: Date.now() + refuseMs })
  }

  async function onThread(tenant: string, job: SchemaJob, bytes: number): Promise<unknown> {
    // Per tenant: arguments of one tenant must not block a schema that another tenant uses too.
    const key = `${tenant} ${job.schema}`
    const admit = () => requireNotFailing(key)
    admit()
    try {
      const answer = await pool.run(tenant, job, bytes, admit)
      failing.delete(key)
      return answer
    } catch (error) {
      if (!(error instanceof TooCostly)) throw error
      strike(key)
      throw new Fault(
        error.kind,
        error.kind === 'timeout' ? `it takes longer than ${deadlineMs} ms to check` : error.message,
        { hint: 'simplify the schema, its patterns first', cause: error },
      )
    }
  }

  return {
    async declare(tenant, schema) {
      const { text, linear } = prepare(schema)
      if (linear) return
      await onThread(tenant, { schema: text }, text.length).catch((error: unknown) => {
        throw error instanceof Refused
          ? new Fault('invalid', `is not a JSON schema: ${error.message}`, { cause: error })
          : error
      })
    },
    validate(tenant, schema, value) {
      const { text, linear } = prepare(schema)
      if (linear) return linear(value)
      const job = { schema: text, value: JSON.stringify(value) }
      return onThread(tenant, job, text.length + job.value.length) as Promise<string | undefined>
    },
    close: () => pool.close(),
  }
}
