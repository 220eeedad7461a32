import { rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { defineConfig } from 'vitest/config'

// What the suites called, for the gate that runs after them.
const env = { OUBLIETTE_TEST_CALLS: join(tmpdir(), `oub-calls-${process.pid}`) }
process.once('exit', () => rmSync(env.OUBLIETTE_TEST_CALLS, { force: true }))
const gate = 'test/suites/source/coverage.test.ts'

export default defineConfig({
  test: {
    retry: 0,
    teardownTimeout: 30_000,
    projects: [
      {
        test: {
          name: 'unit',
          include: ['{internal,cmd,images,packages}/**/*.test.ts'],
          setupFiles: ['test/harness/setup/property-seed.ts'],
          testTimeout: 10_000,
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          name: 'suites',
          include: ['test/{suites,integration}/**/*.test.ts'],
          exclude: [gate],
          env,
          globalSetup: ['test/harness/setup/global-setup.ts'],
          testTimeout: 60_000,
          hookTimeout: 120_000,
          // Each file boots servers and containers; more at once measure the machine, not the product.
          maxWorkers: 2,
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: {
          name: 'gate',
          include: [gate],
          env,
          sequence: { groupOrder: 2 },
        },
      },
    ],
  },
})
