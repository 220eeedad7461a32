// What the engine says about itself: the facts that decide whether containers can run and their limits hold.
import type Docker from 'dockerode'
import type { EngineDescription } from '../runtime.ts'

type Info = {
  ServerVersion: string
  Driver: string
  CgroupVersion?: string
  MemoryLimit?: boolean
  CpuCfsQuota?: boolean
  PidsLimit?: boolean
  DockerRootDir: string
  SystemTime: string
  LiveRestoreEnabled?: boolean
}

/** A limit that the kernel does not support is accepted by the engine, and has no effect. */
const limits = { MemoryLimit: 'memory', CpuCfsQuota: 'CPU', PidsLimit: 'pids' } as const

export const createDescribe =
  (docker: Docker, is_local: boolean) =>
  async (signal?: AbortSignal): Promise<EngineDescription> => {
    // The declared type has no options.
    const info = docker.info.bind(docker) as (options: { abortSignal?: AbortSignal }) => Promise<Info>
    const found = await info(signal ? { abortSignal: signal } : {})
    return {
      version: found.ServerVersion,
      storage_driver: found.Driver,
      cgroup_version: found.CgroupVersion ?? '1',
      missing_limits: (Object.keys(limits) as (keyof typeof limits)[])
        .filter((name) => found[name] === false)
        .map((name) => limits[name]),
      live_restore: found.LiveRestoreEnabled === true,
      data_directory: is_local ? found.DockerRootDir : null,
      time: found.SystemTime,
    }
  }
