// Property tests print the seed of a failure; OUBLIETTE_TEST_SEED repeats it.
const seed = Number(process.env.OUBLIETTE_TEST_SEED)
if (seed) {
  const { default: fc } = await import('fast-check')
  fc.configureGlobal({ seed })
}
