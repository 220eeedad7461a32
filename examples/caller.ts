// An application that offers two tools to a droid and answers its calls.
//
//   ./oubliette node examples/caller.ts PROJECT ['oubliette-client call desk_lookup "{\"sku\":\"A-1\"}"']
//
// OUBLIETTE_URL and OUBLIETTE_TOKEN are the server's address and the caller's token. Kill the server while this runs and start
// it again: open calls are answered after the restart. Outside this repository, import from '@oubliette/client' instead.
import { createClient, tool } from '../packages/client/src/index.ts'

const [project_id, prompt = 'oubliette-client call desk_lookup \'{"sku":"A-1"}\''] = process.argv.slice(2)
const { OUBLIETTE_URL = 'http://127.0.0.1:8080', OUBLIETTE_TOKEN = '' } = process.env
if (!project_id || !OUBLIETTE_TOKEN) {
  console.error('usage: OUBLIETTE_TOKEN=oub_… caller.ts PROJECT [PROMPT]')
  process.exit(2)
}

const stock: Record<string, number> = { 'A-1': 12, 'B-2': 0 }
const tools = {
  lookup: tool<{ sku: string }>({
    description: 'Returns the number of items in stock for an article.',
    inputSchema: {
      type: 'object',
      properties: { sku: { type: 'string' } },
      required: ['sku'],
      additionalProperties: false,
    },
    annotations: { readOnlyHint: true },
    run: ({ sku }) => {
      if (!Object.hasOwn(stock, sku)) throw new Error(`no article ${sku}`)
      return { sku, in_stock: stock[sku] }
    },
  }),
  ask_person: tool<{ question: string }>({
    description: 'Asks a person a question and returns the answer, which may take up to a day.',
    inputSchema: { type: 'object', properties: { question: { type: 'string' } }, required: ['question'] },
    timeout_seconds: 24 * 3600,
    run: async ({ question }, { progress, signal }) => {
      await progress(0, { message: 'waiting for the person' })
      process.stdout.write(`${question} `)
      const { createInterface } = await import('node:readline/promises')
      const terminal = createInterface({ input: process.stdin })
      try {
        return await terminal.question('', { signal })
      } finally {
        terminal.close()
      }
    },
  }),
}

const client = createClient({
  url: OUBLIETTE_URL,
  token: OUBLIETTE_TOKEN,
  onRetry: ({ error, wait_seconds }) => console.error(`${error.message}; retrying in ${wait_seconds} s`),
})
const session = client.session({ project_id, new_session: true, caller_id: 'desk', tools })
const answer = await session.ask(prompt, {
  onEvent: (event) =>
    console.log(event.index, event.type, String(event.text ?? event.tool ?? event.status ?? '').trimEnd()),
})
console.log(`${session.session_id} ${answer.stop_reason}: ${answer.final_text}`)
await session.end()
