// A chat without a terminal: every line of standard input is a message, sent when the turn before it is over. Ends after the
// last one, with the outcome of its turn.
import { createInterface } from 'node:readline'
import { callTool } from '../client/call.ts'
import { exitCodeOf, isTurnOver, type RunEvent, readEvents } from '../run/events.ts'
import { asksPerson, explainQuestion } from '../run/questions.ts'
import { type Chat, openScreen } from './transcript.ts'

export async function sendLines({ where, base, session, project }: Chat): Promise<number> {
  const session_id = String(session.session_id)
  const { screen, renderer } = openScreen()
  screen.show(
    renderer.starting({
      droid: String(session.droid),
      model: session.model as string | null,
      project,
      workspace: String(session.workspace_id),
      session_id,
    }),
  )
  let last: RunEvent | undefined
  for await (const line of createInterface({ input: process.stdin })) {
    if (line.trim() === '') continue
    const sent = await callTool(where, 'session', { action: 'message', session_id, message: line })
    for await (const event of readEvents(base, where.token, session_id, Number(sent.since_index))) {
      last = event
      screen.show(renderer.take(event))
      if (asksPerson(event))
        screen.lines([...renderer.question(event), await explainQuestion(where, session_id, event)])
      if (isTurnOver(event, String(sent.turn_id))) break
    }
  }
  screen.end()
  return last ? exitCodeOf(last) : 0
}
