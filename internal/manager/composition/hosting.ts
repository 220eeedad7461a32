// Builds what hosts sessions: the disk, the containers of projects, their workspaces, and commands in them.
import { Fault } from '../../fault.ts'
import { type ClientInContainer, createContainers } from '../container/containers.ts'
import { createContainerEnds } from '../container/ends.ts'
import type { Pause } from '../container/pause.ts'
import type { Uplink } from '../container/uplink.ts'
import { createFreeSpace } from '../disk/free-space.ts'
import { createDiskWatch } from '../disk/watch.ts'
import { createAttached } from '../exec/attached.ts'
import { createDetached } from '../exec/detached.ts'
import { createReadOutput } from '../exec/output.ts'
import type { ExecRecords } from '../exec/records.ts'
import type { SessionEnds } from '../session/ends.ts'
import { createSessionSteps } from '../session/preparing.ts'
import { createTerminals } from '../terminal/terminals.ts'
import { createArchives } from '../workspace/archives.ts'
import { createClone } from '../workspace/clone.ts'
import { createPreparation } from '../workspace/preparation.ts'
import { createWorkspaces } from '../workspace/workspaces.ts'
import type { Foundation } from './foundation.ts'

type Deps = {
  base: Foundation
  client: ClientInContainer
  uplink: Uplink
  ends: Pick<SessionEnds, 'failAll'>
  execRecords: ExecRecords
  pause: Pause
}

export function createHosting({ base, client, uplink, ends, execRecords, pause }: Deps) {
  const { relay, supervisorOf, listen, git, byteStreams } = uplink
  const space = createFreeSpace(base)
  const preparation = createPreparation({ ...base, supervisorOf, clone: createClone({ supervisorOf, git }) })
  const containerEnds = createContainerEnds(base)
  const containers = createContainers({
    ...base,
    client: client,
    sessionSteps: createSessionSteps(base),
    prepare: preparation.prepare,
    unprepared: preparation.unprepared,
    listen,
    ends: containerEnds,
    paused: pause,
    requireFree: space.requireFree,
    onStop: async (project_id) => {
      await ends.failAll(project_id, 'the container was stopped')
      await execRecords.lose(project_id, 'the container was stopped')
      await preparation.unprepared(project_id)
    },
  })
  const disk = createDiskWatch({
    ...base,
    space,
    stop: async (project_id, reason) => {
      // A start may be cloning for minutes.
      base.serial.interrupt(project_id, new Fault('exhausted', reason))
      await ends.failAll(project_id, reason)
      await containers.stop(project_id, 1)
    },
  })
  const workspaces = createWorkspaces({ ...base, disk })
  const archives = createArchives({ ...base, workspaces, disk })
  const attached = createAttached({ ...base, git, supervisor: relay.supervisor, supervisorOf, containers })
  const execs = createDetached({
    ...base,
    records: execRecords,
    relay,
    supervisorOf,
    attached,
    git,
    readOutput: createReadOutput(base),
  })
  const terminals = createTerminals({ ...base, git, byteStreams, attached, workspaces })

  return {
    requireFree: space.requireFree,
    unprepared: preparation.unprepared,
    containerEnds,
    containers,
    disk,
    workspaces,
    archives,
    attached,
    execs,
    terminals,
  }
}
export type Hosting = ReturnType<typeof createHosting>
