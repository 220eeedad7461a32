// Builds sessions with what decides when their droids start: memory admission, hibernation and the dispatcher.
import type { ApprovalInbox } from '../approval/approvals.ts'
import type { CallerRequests } from '../caller/requests.ts'
import type { CallerTools } from '../caller/tools.ts'
import type { Pause } from '../container/pause.ts'
import type { Uplink } from '../container/uplink.ts'
import { createAdmission } from '../memory/admission.ts'
import { createHibernation } from '../memory/hibernation.ts'
import { createMeasuredMemory } from '../memory/measured.ts'
import { createDispatch } from '../session/dispatch.ts'
import type { SessionEnds } from '../session/ends.ts'
import { createSessions } from '../session/sessions.ts'
import type { Foundation } from './foundation.ts'
import type { Hosting } from './hosting.ts'

type Deps = {
  base: Foundation
  uplink: Uplink
  ends: SessionEnds
  pause: Pause
  hosting: Pick<Hosting, 'workspaces' | 'containers' | 'requireFree'>
  callerTools: CallerTools
  callerRequests: CallerRequests
  approvals: Pick<ApprovalInbox, 'openOf'>
}

export function createSessionParts({
  base,
  uplink,
  ends,
  pause,
  hosting,
  callerTools,
  callerRequests,
  approvals,
}: Deps) {
  const { relay, supervisorOf } = uplink
  const { workspaces, containers, requireFree } = hosting
  const measured = createMeasuredMemory({ ...base, relay, paused: pause.isPaused })
  const admission = createAdmission({ ...base, measured })
  const hibernation = createHibernation(base)
  const sessions = createSessions({
    ...base,
    ends,
    workspaces,
    callerTools,
    admission,
    measured,
    paused: pause.isPaused,
    openRequests: callerRequests.shown,
    openQuestions: approvals.openOf,
    requireFree,
    toolsChanged: (project_id, session_id) => {
      callerTools.changed(session_id)
      relay.toolsChanged(project_id, session_id)
    },
    forget: uplink.forgetSessions,
  })
  const dispatch = createDispatch({
    ...base,
    relay,
    supervisorOf,
    containers,
    ends,
    restart: sessions.restart,
    hibernated: hibernation.done,
    paused: pause.isPaused,
  })

  return { sessions, dispatch, admission, hibernation, measured }
}
