// The answer to a client that comes back for the answers of calls which ran when the server was killed. Nobody will ever
// answer them, so each gets an error at once.
import type { RequestId } from '@modelcontextprotocol/server'
import { Fault } from '../../fault.ts'

/** As events of a stream. */
export function lostAnswers(requests: RequestId[], event_id?: string): string {
  const data = new Fault('unavailable', 'the server restarted before it answered this call', {
    hint: 'the call may have taken effect: look at what it was to change, or repeat it with its idempotency key',
  }).shape()
  const message = `${data.message}; ${data.hint}`
  const answers = requests.map((id) => ({ jsonrpc: '2.0', id, error: { code: -32000, message, data } }))
  const head = event_id === undefined ? '' : `id: ${event_id}\n`
  return answers.map((answer) => `event: message\n${head}data: ${JSON.stringify(answer)}\n\n`).join('')
}

export const answerLost = (session_id: string, requests: RequestId[], event_id: string): Response =>
  new Response(lostAnswers(requests, event_id), {
    headers: {
      'content-type': 'text/event-stream',
      'cache-control': 'no-cache, no-transform',
      'mcp-session-id': session_id,
    },
  })
