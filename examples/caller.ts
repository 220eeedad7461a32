// An application that offers two tools to a droid and answers its calls.
//
//   node examples/caller.ts PROJECT_ID ['oubliette-client call desk_lookup "{\"sku\":\"A-1\"}"']
//
// OUBLIETTE_URL and OUBLIETTE_TOKEN say where the server is and who we are. Kill the server while it runs and start it
// again: the calls that were open are answered then.
import { createCaller, tool } from './oubliette-caller.ts'

const [project_id, prompt = 'oubliette-client call desk_lookup \'{"sku":"A-1"}\''] = process.argv.slice(2)
const { OUBLIETTE_URL = 'http://127.0.0.1:8080', OUBLIETTE_TOKEN = '' } = process.env
if (!project_id) throw new Error('usage: caller.ts PROJECT_ID [PROMPT]')

const stock: Record<string, number> = { 'A-1': 12, 'B-2': 0 }
const caller = createCaller({
  url: OUBLIETTE_URL,
  token: OUBLIETTE_TOKEN,
  caller_id: 'desk',
  tools: {
    lookup: tool<{ sku: string }>({
      description: 'How many of an article are in stock.',
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
      description: 'Ask a person, who may take a day to answer.',
      inputSchema: { type: 'object', properties: { question: { type: 'string' } }, required: ['question'] },
      timeout_seconds: 24 * 3600,
      run: async ({ question }, { progress, signal }) => {
        await progress(0, { message: 'the person is being asked' })
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
  },
  onTrouble: (error) => console.error(`trying again: ${(error as Error).message}`),
})

const session_id = await caller.spawn({ project_id, prompt, new_session: true })
console.log(`session ${session_id}`)
const done = new AbortController()
await caller.attend(session_id, {
  signal: done.signal,
  onEvent(event) {
    console.log(event.index, event.type, event.text ?? event.tool ?? event.status ?? '')
    if (event.type === 'completion') done.abort()
  },
})
await caller.call('session', { action: 'end', session_id })
await caller.close()
