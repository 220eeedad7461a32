import { z } from 'zod'
import { Fault } from '../../fault.ts'
import type { Addressed } from '../../manager/session/sessions.ts'
import { sessionStatuses } from '../../protocol/session-status.ts'
import { action, type RunContext, tool } from '../tool.ts'
import { cursor, limit, next_cursor, project_id, time, workspace_id } from './fields.ts'
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

async function answer({ managers, signal, progress }: RunContext, turn: Addressed, wait: number) {
  let told = 0
  const finished =
    wait > 0 &&
    (await managers.sessionWait.turn(turn, { wait_seconds: wait, signal }, (event) => {
      const { text } = event as { text?: unknown }
      progress({ progress: ++told, message: typeof text === 'string' ? text.slice(0, 500) : event.type })
    }))
  const { turn_id, since_index, spawned } = turn
  return { ...(await managers.sessions.get(turn.session_id)), turn_id, since_index, spawned, finished }
}

export const sessionTool = tool({
  name: 'session',
  about: 'Conversations with droids in the container of a project.',
  actions: {
    spawn: action({
      about:
        'Give a droid a prompt. Goes on with the latest session of the workspace, if it is what you ask for, unless `new_session`.',
      needs: 'project:write',
      awaits_intent: true,
      input: z.object({
        project_id,
        prompt: text.optional().describe('What the droid shall do. For the droid `shell`: a bash script.'),
        message: text.optional().describe('The same as `prompt`.'),
        workspace_id: workspace_id.optional(),
        new_session: z.boolean().default(false).describe('Start afresh.'),
        ...spawning,
        ...calling,
        attachments,
        wait_seconds,
        idempotency_key: idempotency_key.describe('A repeat with the same key returns the first session.'),
      }),
      output: addressed,
      run: async (
        context,
        { prompt, message, attachments, wait_seconds, caller_id, caller_tools, context: more, ...rest },
      ) => {
        const text = prompt ?? message
        if (text === undefined) throw new Fault('invalid', 'session.spawn: prompt is missing')
        const declaration = declarationOf({ caller_id, caller_tools, context: more })
        const wish = { ...rest, declaration, turn: { text, attachments } }
        const turn = await context.managers.sessions.start(context.caller, wish, context.intent)
        return await answer(context, turn, wait_seconds)
      },
    }),
    message: action({
      about:
        'Speak to a session: queued while its droid is busy. With a project instead, to its latest one, or a new one.',
      needs: 'project:write',
      input: z.object({
        session_id: session_id.optional(),
        project_id: project_id.optional(),
        workspace_id: workspace_id.optional(),
        message: text.describe('What to say.'),
        ...spawning,
        ...calling,
        attachments,
        wait_seconds,
        idempotency_key: idempotency_key.describe('A repeat with the same key says nothing more.'),
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
        if (!project_id) throw new Fault('invalid', 'session.message: session_id or project_id is needed')
        return await answer(
          context,
          await sessions.start(context.caller, { ...rest, project_id, declaration, turn }),
          wait_seconds,
        )
      },
    }),
    get: action({
      about: 'One session.',
      needs: 'project:read',
      input: z.object({ session_id }),
      output: session,
      run: async ({ managers }, input) => await managers.sessions.get(input.session_id),
    }),
    list: action({
      about: 'Sessions, oldest first.',
      needs: 'project:read',
      input: z.object({
        project_id: project_id
          .optional()
          .describe('Of this project; of all that this token may see if left out.'),
        status: z.enum(sessionStatuses).optional().describe('Only these.'),
        parent_session_id: session_id.optional().describe('Only the children of this one.'),
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
        'Stop the droid and everything it started, and all sessions below it. The session is over for good. Output of a running turn that is not stored yet is dropped beyond 64 KiB, and a warning event says how much.',
      needs: 'project:write',
      destructive: true,
      idempotent: true,
      input: z.object({
        session_id,
        wait_seconds: z.number().min(0).max(60).default(10).describe('How long to wait for the end.'),
      }),
      output: z.object({
        ...session.shape,
        ended: z.array(z.string()).describe('Ids of all sessions of the tree.'),
      }),
      run: async ({ managers, signal }, input) => {
        await managers.sessions.require(input.session_id)
        const ended = await managers.sessions.end(input.session_id)
        await managers.sessionWait.ended(ended, { wait_seconds: input.wait_seconds, signal })
        return { ...(await managers.sessions.get(input.session_id)), ended }
      },
    }),
    cancel: action({
      about: 'Stop the running turn. The session stays.',
      needs: 'project:write',
      idempotent: true,
      input: z.object({ session_id }),
      output: session,
      run: async ({ managers }, input) => {
        await managers.sessions.cancel(input.session_id)
        return await managers.sessions.get(input.session_id)
      },
    }),
    events: action({
      about: 'The events after `since_index`, oldest first; waits for the next one with `wait_seconds`.',
      needs: 'project:read',
      input: z.object({
        session_id,
        since_index: z
          .int()
          .min(-1)
          .default(-1)
          .describe('From the first if left out. With include_children: a `position`.'),
        max_events: z
          .int()
          .min(1)
          .max(1000)
          .default(100)
          .describe('How many at most; fewer when they are large.'),
        include_children: z
          .boolean()
          .default(false)
          .describe(
            'Of all sessions below it too, in one order; `last_index` is then a position in that order.',
          ),
        wait_seconds: z
          .number()
          .min(0)
          .max(300)
          .default(0)
          .describe('How long to wait if there is none yet.'),
      }),
      output: z.object({
        events: z.array(
          z.looseObject({ index: z.number(), type: z.string(), session_id: z.string(), at: time }),
        ),
        last_index: z.number(),
        status: z.enum(sessionStatuses),
        has_more: z.boolean(),
      }),
      run: async ({ managers, signal }, { session_id, ...query }) =>
        await managers.sessionWait.page(session_id, { ...query, signal }),
    }),
    cleanup: action({
      about: 'Remove sessions that have been over for long, with their events.',
      needs: 'project:write',
      destructive: true,
      idempotent: true,
      input: z.object({
        project_id: project_id
          .optional()
          .describe('Of this project; of all that this token may see if left out.'),
        max_age_hours: z.number().min(0).max(87_600).default(24).describe('Over for at least this long.'),
      }),
      output: z.object({ removed: z.array(z.string()) }),
      run: async ({ managers, caller: { scope } }, input) => {
        const project_id = input.project_id ?? (scope.kind === 'project' ? scope.project_id : undefined)
        return { removed: await managers.sessions.cleanup({ ...input, project_id }) }
      },
    }),
  },
})
