// Whether a value fits a schema that a tenant gave. Schemas whose check is linear are checked at once; all others on a
// thread with a deadline, tenants in turns. A schema that missed the deadline several times is refused for a while
// without being tried. Nothing is shared between schemas but the place where they are remembered, by their text.
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

/** A schema that is within the limits, and how it is checked. */
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
    throw new Fault('exhausted', `it took longer than ${deadlineMs} ms ${failed.count} times`, {
      hint: `simplify its patterns; it is tried again after ${refuseMs / 1000} s`,
    })
  }

  function strike(key: string): void {
    const count = (failing.get(key)?.count ?? 0) + 1
    failing.set(key, { count, until: Date.now() + refuseMs })
  }

  async function onThread(tenant: string, job: SchemaJob, bytes: number): Promise<unknown> {
    // Per tenant: another tenant's arguments must not condemn a schema that both happen to use.
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
