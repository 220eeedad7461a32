// A droid that does nothing but call one tool of a caller, so many times at once, through the real client and a real MCP
// connection on its stdio. Bundled into a workspace and run by a shell droid: work.mjs COUNT OUTPUT
import { writeFileSync } from 'node:fs'
import { Client } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'

const [count = '1', output = 'answers.json'] = process.argv.slice(2)
const client = new Client({ name: 'busy droid', version: '1' })
await client.connect(
  new StdioClientTransport({
    command: 'oubliette-client',
    args: ['mcp'],
    env: process.env as Record<string, string>,
  }),
)
const answers = await Promise.all(
  Array.from({ length: Number(count) }, async (_, n) => {
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
  }),
)
writeFileSync(output, JSON.stringify(answers))
await client.close()
console.log(`done ${answers.length}`)
