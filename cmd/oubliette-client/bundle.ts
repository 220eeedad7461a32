// Bundles the client into one file, for containers whose image does not include it. The server does this at every start, so
// it has to be fast; the directory is named by a hash of the content.
import { createHash } from 'node:crypto'
import { chmod, mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build, stop } from 'esbuild'
import { Fault, messageOf } from '../../internal/fault.ts'

const entry = join(dirname(fileURLToPath(import.meta.url)), 'main.ts')

/** Files beside the bundle, by their names there. */
const scripts = { 'oubliette-client': 'launcher.sh', 'mcp-bridge': 'mcp-bridge.sh' }

/** Reproducible: the same sources give the same bytes on every machine. */
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
      // CommonJS dependencies need `require`, which ES modules do not have.
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
    throw new Fault('internal', `failed to bundle the client: ${messageOf(error)}`, { cause: error })
  } finally {
    // Otherwise esbuild's process would stay, with 57 MiB, as long as the server runs.
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
