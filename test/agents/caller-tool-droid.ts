// A droid that does nothing but call one tool of a caller through the real client and a real MCP connection on its stdio: so
// many times at once, or one call after another until a file is there. Bundled into a workspace and run by a shell droid:
// work.mjs COUNT OUTPUT, or work.mjs until FILE OUTPUT
import { appendFileSync, existsSync, writeFileSync } from 'node:fs'
import { Client } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'

const [first = '1', ...rest] = process.argv.slice(2)
const client = new Client({ name: 'busy droid', version: '1' })
await client.connect(
  new StdioClientTransport({
    command: 'oubliette-client',
    args: ['mcp'],
    env: process.env as Record<string, string>,
  }),
)

async function ask(n: number) {
  const options = { timeout: 600_000, onprogress: () => undefined, resetTimeoutOnProgress: true }
  try {
    const { structuredContent, isError } = await client.callTool(
      { name: 'app_work', arguments: { n } },
      options,
    )
    return { n, answer: structuredContent, failed: isError === true }
  } catch (error) {
    return { n, answer: String(error), failed: true }
  }
}

if (first === 'until') {
  const [file = 'stop', output = 'answers.jsonl'] = rest
  let n = 0
  while (!existsSync(file)) appendFileSync(output, `${JSON.stringify(await ask(++n))}\n`)
  console.log(`last ${n}`)
} else {
  const [output = 'answers.json'] = rest
  const answers = await Promise.all(Array.from({ length: Number(first) }, (_, n) => ask(n)))
  writeFileSync(output, JSON.stringify(answers))
  console.log(`done ${answers.length}`)
}
await client.close()
