// The client as one file, for containers whose image does not have it. Made by the server at its start, which is why it
// is quick and why its name says what is in it.
import { createHash } from 'node:crypto'
import { chmod, mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build, stop } from 'esbuild'
import { Fault, messageOf } from '../../internal/fault.ts'

const entry = join(dirname(fileURLToPath(import.meta.url)), 'main.ts')

/** What stands beside the bundle, by the name that it has there. */
const scripts = { 'oubliette-client': 'launcher.sh', 'mcp-bridge': 'mcp-bridge.sh' }

/** The same sources give the same bytes, on every machine. */
async function bundledClient(): Promise<{ files: [name: string, content: Uint8Array][]; hash: string }> {
  try {
    const { outputFiles } = await build({
      entryPoints: [entry],
      bundle: true,
      write: false,
      platform: 'node',
      target: 'node24',
      format: 'esm',
      minify: true,
      keepNames: false,
      legalComments: 'none',
      absWorkingDir: join(dirname(entry), '..', '..'),
      // CommonJS in a dependency asks for require, which a module does not have by itself.
      banner: {
        js: "import{createRequire as __createRequire}from'node:module';const require=__createRequire(import.meta.url);",
      },
      logLevel: 'silent',
    })
    const files: [name: string, content: Uint8Array][] = [['client.mjs', outputFiles[0]!.contents]]
    for (const [name, source] of Object.entries(scripts))
      files.push([name, await readFile(join(dirname(entry), source))])
    const hash = createHash('sha256')
    for (const [, content] of files) hash.update(content)
    return { files, hash: hash.digest('hex').slice(0, 16) }
  } catch (error) {
    throw new Fault('internal', `the client cannot be bundled: ${messageOf(error)}`, { cause: error })
  } finally {
    // Its process would stay, with 57 MiB, as long as the server runs.
    await stop()
  }
}

/** Writes `<into>/<hash>/client.mjs` and the scripts beside it. Safe to repeat. */
export async function bundleClient(into: string): Promise<{ directory: string; file: string; hash: string }> {
  const { files, hash } = await bundledClient()
  const directory = join(into, hash)
  await mkdir(directory, { recursive: true })
  for (const [name, content] of files) {
    // Renamed into place, because a container may be reading it.
    const fresh = join(directory, `.${name}.${process.pid}`)
    await writeFile(fresh, content)
    await chmod(fresh, 0o755)
    await rename(fresh, join(directory, name))
  }
  return { directory, file: join(directory, 'client.mjs'), hash }
}
