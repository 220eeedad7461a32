// Where `run` sends a prompt: a new session of a project, which is created if no project has that name, or a session to
// continue.
import { Fault, type Kind } from '../../../internal/fault.ts'
import { looksLikeId } from '../../../internal/ids.ts'
import { callTool, type Endpoint } from '../client/call.ts'
import { listSessions, resolveSession } from '../tool-command/session-reference.ts'
import { type Asked, combine } from './prompt.ts'

export const source = 'oubliette run'
const most_tries = 5

export type Sent = {
  session_id: string
  turn_id: string
  since_index: number
  droid: string
  model: string | null
  project_id: string
  workspace_id: string
  status: string
}
type Project = { project_id: string; name: string }
type Listed = {
  session_id: string
  project_id: string
  workspace_id: string
  droid: string
  status: string
  source: string | null
  created_at: string
}

const isFault = (error: unknown, kind: Kind): boolean => error instanceof Fault && error.kind === kind

/** A project by id or name. */
export const requireProject = async (where: Endpoint, name: string): Promise<Project> =>
  (await callTool(where, 'project', { action: 'get', project_id: name })) as Project

/** Creates the project if no project has that name; an id is never used as a name. */
async function projectNamed(where: Endpoint, name: string, droid: string | undefined): Promise<Project> {
  try {
    return await requireProject(where, name)
  } catch (error) {
    if (!isFault(error, 'not_found') || looksLikeId(name)) throw error
  }
  try {
    const fields = { name, ...(droid ? { droid } : {}) }
    return (await callTool(where, 'project', { action: 'create', ...fields })) as Project
  } catch (error) {
    // A concurrent `run` created it.
    if (isFault(error, 'conflict')) return await requireProject(where, name)
    throw error
  }
}

/** The droid that a new session of a project gets. */
export async function droidOf(where: Endpoint, project_id: string): Promise<string> {
  const { droid } = await callTool(where, 'project', { action: 'get', project_id })
  if (typeof droid === 'string') return droid
  const { droids } = await callTool(where, 'project', { action: 'options' })
  return (droids as { name: string; is_default: boolean }[]).find((one) => one.is_default)?.name ?? 'shell'
}

export const sendMessage = async (where: Endpoint, session_id: string, message: string): Promise<Sent> =>
  (await callTool(where, 'session', { action: 'message', session_id, message })) as Sent

/** The sessions of earlier runs, newest first. */
async function earlier(
  where: Endpoint,
  filter: { project_id: string; workspace_id?: string; droid?: string },
): Promise<Listed[]> {
  const sessions = (await listSessions(where, { project_id: filter.project_id })) as unknown as Listed[]
  return sessions
    .filter(
      (session) =>
        session.source === source &&
        session.status !== 'cancelled' &&
        (filter.workspace_id === undefined || session.workspace_id === filter.workspace_id) &&
        (filter.droid === undefined || session.droid === filter.droid),
    )
    .sort((a, b) => Date.parse(b.created_at) - Date.parse(a.created_at))
}

/** Sends to the newest session of earlier runs that takes messages: one that was ended does not. */
export async function continueLatest(
  where: Endpoint,
  project: Project,
  filter: { workspace_id?: string; droid?: string },
  messageFor: (droid: string) => string,
): Promise<Sent> {
  const found = await earlier(where, { project_id: project.project_id, ...filter })
  for (const { session_id, droid } of found.slice(0, most_tries)) {
    try {
      return await sendMessage(where, session_id, messageFor(droid))
    } catch (error) {
      if (!isFault(error, 'conflict')) throw error
    }
  }
  throw new Fault('not_found', `no session of project "${project.name}" to continue`, {
    hint: 'start one with "./oubliette run --keep PROMPT", or name one with --session',
  })
}

export async function continueSession(
  where: Endpoint,
  given: string,
  messageFor: (droid: string) => string,
  needs_droid: boolean,
): Promise<Sent> {
  const session_id = await resolveSession(where, given)
  const droid = needs_droid
    ? String((await callTool(where, 'session', { action: 'get', session_id })).droid)
    : ''
  return await sendMessage(where, session_id, messageFor(droid))
}

export type Flags = {
  droid?: string
  project?: string
  workspace?: string
  model?: string
  autonomy?: string
  session?: string
  continue: boolean
  keep: boolean
  json: boolean
  quiet: boolean
}

/** `project` is its name, if it is known. */
export async function sendPrompt(
  where: Endpoint,
  flags: Flags,
  { prompt, input }: Asked,
): Promise<{ sent: Sent; project?: string }> {
  const messageFor = (droid: string) => (input === undefined ? prompt : combine(prompt, input, droid))
  if (flags.session !== undefined)
    return { sent: await continueSession(where, flags.session, messageFor, input !== undefined) }
  // Agents need containers of different types, so each has its own project.
  const own = flags.droid !== undefined && flags.droid !== 'shell' ? flags.droid : 'default'
  const name = flags.project ?? own
  if (flags.continue) {
    const project = await requireProject(where, name)
    const filter = {
      ...(flags.workspace ? { workspace_id: flags.workspace } : {}),
      ...(flags.droid ? { droid: flags.droid } : {}),
    }
    return { sent: await continueLatest(where, project, filter, messageFor), project: project.name }
  }
  const { project_id, name: project } = await projectNamed(where, name, flags.droid)
  const droid = input === undefined ? '' : (flags.droid ?? (await droidOf(where, project_id)))
  const sent = await callTool(where, 'session', {
    action: 'spawn',
    project_id,
    prompt: messageFor(droid),
    new_session: true,
    source,
    ...(flags.workspace ? { workspace_id: flags.workspace } : {}),
    ...(flags.droid ? { droid: flags.droid } : {}),
    ...(flags.model ? { model: flags.model } : {}),
    ...(flags.autonomy ? { autonomy_level: flags.autonomy } : {}),
  })
  return { sent: sent as Sent, project }
}
