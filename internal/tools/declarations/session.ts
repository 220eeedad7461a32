import { z } from 'zod'
import { Fault } from '../../fault.ts'
import { stepText } from '../../manager/container/starts.ts'
import type { ShownEvent } from '../../manager/events/event-log.ts'
import type { Addressed } from '../../manager/session/sessions.ts'
import { sessionStatuses } from '../../protocol/session-status.ts'
import { reporting } from '../reporting.ts'
import { action, type RunContext, tool } from '../tool.ts'
import {
  cursor,
  exampleIds as ids,
  limit,
  next_cursor,
  pagingBriefs,
  project_id,
  time,
  workspace_id,
} from './fields.ts'
import {
  addressed,
  attachments,
  calling,
  declarationOf,
  idempotency_key,
  session,
  session_id,
  spawning,
  text,
  wait_seconds,
} from './session-fields.ts'

const mostProgress = 500

/** An event as the message of a progress report. */
function progressOf(event: ShownEvent): string {
  const { text, step, percent, status } = event as Record<string, unknown>
  if (typeof text === 'string') return text.slice(0, mostProgress)
  if (typeof step === 'string') return stepText({ step, ...(typeof percent === 'number' ? { percent } : {}) })
  return typeof status === 'string' && event.type === 'status' ? status : event.type
}

async function answer({ managers, signal, progress }: RunContext, turn: Addressed, wait: number) {
  using report = reporting(progress)
  const finished =
    wait > 0 &&
    (await managers.sessionWait.turn(turn, { wait_seconds: wait, signal }, (event) =>
      report.tell(progressOf(event)),
    ))
  const { turn_id, since_index, spawned } = turn
  return { ...(await managers.sessions.get(turn.session_id)), turn_id, since_index, spawned, finished }
}

export const sessionTool = tool({
  name: 'session',
  about: 'Sessions: conversations with droids (agents) that run in the container of a project.',
  brief: 'Conversations with droids (agents).',
  unlisted: ['context', 'parent_session_id', 'external_id', 'source', 'idempotency_key'],
  briefs: {
    ...pagingBriefs,
    prompt: 'Required; a bash script for the droid shell',
    message: 'For spawn: alias of prompt',
    workspace_id: 'Default: the default workspace',
    new_session: 'Never resume',
    droid: "See project options; default: the project's",
    model: "Default: the project's",
    reasoning_level: '',
    autonomy_level: '',
    tools_allowed: 'Built-in ones',
    tools_disallowed: '',
    api_scope: 'Of these tools for the droid; default: none',
    create_workspace: 'Default false',
    caller_id: 'Prefix of your tools',
    caller_tools: 'Yours; answer calls with caller_tool_response',
    attachments: 'Files for the workspace',
    wait_seconds: '',
    session_id: '',
    status: '',
    since_index: '',
    max_events: '',
    include_children: 'Descendants too',
    max_age_hours: '',
  },
  actions: {
    spawn: action({
      about:
        'Send a prompt to a droid and return the session. Resumes the latest session of the workspace if it matches the given fields, otherwise, or with `new_session`, starts a new one. Read the output with `events`, or set `wait_seconds`.',
      brief:
        'Send a prompt to a droid; resumes the latest matching session of the workspace or starts one. Wait with wait_seconds or read events.',
      needs: 'project:write',
      awaits_intent: true,
      example: { project_id: ids.project_id, prompt: 'fix the failing test' },
      input: z.object({
        project_id,
        prompt: text
          .optional()
          .describe(
            'Prompt for the droid, required unless `message` is given, at most 2,000,000 characters; a bash script for the droid `shell`.',
          ),
        message: text.optional().describe('Alias of `prompt`.'),
        workspace_id: workspace_id.optional(),
        new_session: z
          .boolean()
          .default(false)
          .describe('Start a new session instead of resuming the latest one. Default: false.'),
        ...spawning,
        ...calling,
        attachments,
        wait_seconds,
        idempotency_key: idempotency_key.describe(
          'A repeated call with the same key returns the first session instead of starting another.',
        ),
      }),
      output: addressed,
      run: async (
        context,
        { prompt, message, attachments, wait_seconds, caller_id, caller_tools, context: more, ...rest },
      ) => {
        const text = prompt ?? message
        if (text === undefined) throw new Fault('invalid', 'session.spawn: missing prompt')
        const declaration = declarationOf({ caller_id, caller_tools, context: more })
        const wish = { ...rest, declaration, turn: { text, attachments } }
        const turn = await context.managers.sessions.start(context.caller, wish, context.intent)
        return await answer(context, turn, wait_seconds)
      },
    }),
    message: action({
      about:
        'Send a message to a session and return the session; the message is queued while the droid is busy. With `project_id` instead of `session_id`, it goes to the latest session of the workspace, or a new one if there is none.',
      brief: 'Send to session_id, or to the latest session of project_id; queued while busy.',
      needs: 'project:write',
      example: { session_id: ids.session_id, message: 'now add a test' },
      input: z.object({
        session_id: session_id
          .optional()
          .describe('Session to send to; required unless `project_id` is given.'),
        project_id: project_id.optional().describe('Project to send to, if `session_id` is left out.'),
        workspace_id: workspace_id.optional(),
        message: text.describe('The message, at most 2,000,000 characters.'),
        ...spawning,
        ...calling,
        attachments,
        wait_seconds,
        idempotency_key: idempotency_key.describe(
          'A repeated call with the same key does not send the message again.',
        ),
      }),
      output: addressed,
      run: async (
        context,
        {
          session_id,
          project_id,
          message,
          attachments,
          wait_seconds,
          caller_id,
          caller_tools,
          context: more,
          ...rest
        },
      ) => {
        const turn = { text: message, attachments }
        const declaration = declarationOf({ caller_id, caller_tools, context: more })
        const { sessions } = context.managers
        if (session_id)
          return await answer(
            context,
            await sessions.address(context.caller, session_id, turn, declaration, rest.idempotency_key),
            wait_seconds,
          )
        if (!project_id) throw new Fault('invalid', 'session.message: missing session_id or project_id')
        return await answer(
          context,
          await sessions.start(context.caller, { ...rest, project_id, declaration, turn }),
          wait_seconds,
        )
      },
    }),
    get: action({
      about: 'Get one session with its status, open requests, last output and usage.',
      brief: 'Get status, open requests, final_text, usage.',
      needs: 'project:read',
      example: { session_id: ids.session_id },
      input: z.object({ session_id }),
      output: session,
      run: async ({ managers }, input) => await managers.sessions.get(input.session_id),
    }),
    list: action({
      about: 'List sessions, oldest first.',
      brief: 'List, oldest first.',
      needs: 'project:read',
      example: { project_id: ids.project_id },
      input: z.object({
        project_id: project_id
          .optional()
          .describe('Only sessions of this project. Default: all projects that this token may see.'),
        status: z.enum(sessionStatuses).optional().describe('Only sessions with this status.'),
        parent_session_id: session_id.optional().describe('Only children of this session.'),
        limit,
        cursor,
      }),
      output: z.object({ sessions: z.array(session), next_cursor }),
      run: async ({ managers, caller: { scope } }, input) => {
        if (input.project_id) await managers.projects.require(input.project_id)
        const project_id = input.project_id ?? (scope.kind === 'project' ? scope.project_id : undefined)
        return await managers.sessions.list({ ...input, project_id })
      },
    }),
    end: action({
      about:
        'End a session for good: stops its droid with all child processes, and all its child sessions; returns the session. Output of a running turn that is not stored yet is dropped beyond 64 KiB, with a warning event. To stop only the running turn, use `cancel`.',
      brief: 'End it and its children for good.',
      needs: 'project:write',
      destructive: true,
      idempotent: true,
      example: { session_id: ids.session_id },
      input: z.object({
        session_id,
        wait_seconds: z
          .number()
          .min(0)
          .max(60)
          .default(10)
          .describe('Seconds to wait for the end, at most 60. Default: 10.'),
      }),
      output: z.object({
        ...session.shape,
        ended: z.array(z.string()).describe('Ids of all ended sessions: this one and its descendants.'),
      }),
      run: async ({ managers, signal, progress }, input) => {
        using _alive = reporting(progress)
        await managers.sessions.require(input.session_id)
        const ended = await managers.sessions.end(input.session_id)
        await managers.sessionWait.ended(ended, { wait_seconds: input.wait_seconds, signal })
        return { ...(await managers.sessions.get(input.session_id)), ended }
      },
    }),
    cancel: action({
      about:
        'Stop the running turn and return the session, which stays usable. To end the session, use `end`.',
      brief: 'Stop the running turn only.',
      needs: 'project:write',
      idempotent: true,
      example: { session_id: ids.session_id },
      input: z.object({ session_id }),
      output: session,
      run: async ({ managers }, input) => {
        await managers.sessions.cancel(input.session_id)
        return await managers.sessions.get(input.session_id)
      },
    }),
    events: action({
      about:
        'Read the events of a session after `since_index`, oldest first; pass `last_index` as `since_index` to read on. With `wait_seconds`, waits for the next event if there is none.',
      brief: 'Read events, oldest first; pass last_index as since_index to read on.',
      needs: 'project:read',
      example: { session_id: ids.session_id, since_index: 0 },
      input: z.object({
        session_id,
        since_index: z
          .int()
          .min(-1)
          .default(-1)
          .describe(
            'Return events after this index; with `include_children`, after this position. Default: -1, from the first event.',
          ),
        max_events: z
          .int()
          .min(1)
          .max(1000)
          .default(100)
          .describe('Maximum number of events, 1 to 1,000; fewer if they are large. Default: 100.'),
        include_children: z
          .boolean()
          .default(false)
          .describe(
            'Also return events of all descendant sessions in one order; `last_index` is then a position in that order. Default: false.',
          ),
        wait_seconds: z
          .number()
          .min(0)
          .max(300)
          .default(0)
          .describe('Seconds to wait if there is no event yet, at most 300. Default: 0.'),
      }),
      output: z.object({
        events: z.array(
          z.looseObject({ index: z.number(), type: z.string(), session_id: z.string(), at: time }),
        ),
        last_index: z.number(),
        status: z.enum(sessionStatuses),
        has_more: z.boolean(),
      }),
      run: async ({ managers, signal, progress }, { session_id, ...query }) => {
        using _alive = reporting(progress)
        return await managers.sessionWait.page(session_id, { ...query, signal })
      },
    }),
    cleanup: action({
      about: 'Delete sessions that ended at least `max_age_hours` ago, with their events; returns their ids.',
      brief: 'Delete ended sessions.',
      needs: 'project:write',
      destructive: true,
      idempotent: true,
      example: { project_id: ids.project_id, max_age_hours: 48 },
      input: z.object({
        project_id: project_id
          .optional()
          .describe('Only sessions of this project. Default: all projects that this token may see.'),
        max_age_hours: z
          .number()
          .min(0)
          .max(87_600)
          .default(24)
          .describe('Minimum hours since the end of the session. Default: 24.'),
      }),
      output: z.object({ removed: z.array(z.string()) }),
      run: async ({ managers, caller: { scope } }, input) => {
        const project_id = input.project_id ?? (scope.kind === 'project' ? scope.project_id : undefined)
        return { removed: await managers.sessions.cleanup({ ...input, project_id }) }
      },
    }),
  },
})
