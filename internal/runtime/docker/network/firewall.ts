// Keeps containers away from the host and from private networks. A bridge's gateway is the host itself, so even an
// internal network reaches every port that listens there; link-local addresses are where clouds hand out credentials;
// and private ones are where others have what needs no password. The rules (`firewall-rules.ts`) name all our bridges by
// their prefix and are set again before each start.

import { access } from 'node:fs/promises'
import { text } from 'node:stream/consumers'
import type Docker from 'dockerode'
import { Fault, messageOf } from '../../../fault.ts'
import { isRoot } from '../../../lib/is-root.ts'
import { findProgram, runCommand } from '../../command.ts'
import type { Images } from '../../image/images.ts'
import { unlessMissing } from '../errors.ts'
import { type Exceptions, ruleScript, rulesAreSet } from './firewall-rules.ts'

export type Firewall = {
  /** Sets the rules; throws `unavailable` if that fails. */
  protect(): Promise<void>
}

const validMs = 20_000
const helperMs = 30_000

export function createFirewall(
  docker: Docker,
  images: Images,
  local_engine: boolean,
  exceptions: Exceptions,
): Firewall {
  const script = ruleScript(exceptions)
  let running: Promise<void> | undefined
  let helped_at = Number.NEGATIVE_INFINITY

  /** Root next to the engine, in the same network namespace: then the engine's default bridge can be seen. */
  async function direct(): Promise<boolean> {
    if (!local_engine || !isRoot() || !(await findProgram('iptables'))) return false
    const bridge = await unlessMissing(docker.getNetwork('bridge').inspect())
    const name = bridge?.Options?.['com.docker.network.bridge.name']
    if (!name) return false
    return await access(`/sys/class/net/${name}`).then(
      () => true,
      () => false,
    )
  }

  /** A container in the host's network with the one capability that this takes, gone when it is done. */
  async function throughContainer(): Promise<void> {
    const image = await images.resolve('base')
    if (!image) throw new Error('image "base" is not built')
    const container = await docker.createContainer({
      Image: image,
      User: '0:0',
      Entrypoint: ['sh', '-c', script],
      Cmd: [],
      Labels: { 'oubliette.firewall': 'true' },
      HostConfig: {
        NetworkMode: 'host',
        CapDrop: ['ALL'],
        CapAdd: ['NET_ADMIN', 'NET_RAW'],
        SecurityOpt: ['no-new-privileges'],
        Ulimits: [{ Name: 'nofile', Soft: 1024, Hard: 1024 }],
        AutoRemove: true,
        Memory: 64 * 1024 * 1024,
        PidsLimit: 64,
      },
    })
    const output = await container.attach({ stream: true, stdout: true, stderr: true })
    const timer = setTimeout(() => void unlessMissing(container.kill()).catch(() => undefined), helperMs)
    try {
      await container.start()
      const output_text = (await text(output)).replace(/[^\x20-\x7e]+/g, ' ').trim()
      if (!output_text.endsWith(rulesAreSet)) throw new Error(output_text || 'no output')
    } catch (error) {
      // One that never started is not removed by the engine.
      await unlessMissing(container.remove({ force: true })).catch(() => undefined)
      throw error
    } finally {
      clearTimeout(timer)
    }
  }

  async function apply(): Promise<void> {
    const failures: string[] = []
    if (await direct()) {
      try {
        await runCommand('sh', ['-c', script])
        return
      } catch (error) {
        failures.push(messageOf(error))
      }
    }
    // A helper container for every start would double its cost.
    if (performance.now() - helped_at < validMs) return
    try {
      await throughContainer()
      helped_at = performance.now()
    } catch (error) {
      failures.push(`with a helper container: ${messageOf(error)}`)
      throw new Fault(
        'unavailable',
        `failed to set the firewall rules that isolate containers from the host: ${failures.join('; ')}`,
        {
          hint: 'run as root with iptables next to the engine, or build the image "base"; network "none" needs no rules',
          cause: error,
        },
      )
    }
  }

  return {
    async protect() {
      running ??= apply().finally(() => {
        running = undefined
      })
      await running
    },
  }
}
