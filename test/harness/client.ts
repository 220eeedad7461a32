// A real MCP client, as an application would use it.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'

export type CallResult = { structured: Record<string, unknown>; is_error: boolean; text: string }

export type TestClient = {
  client: Client
  call(tool: string, args?: Record<string, unknown>): Promise<CallResult>
  close(): Promise<void>
}

export async function connect(server: { url: string }, token: string): Promise<TestClient> {
  const client = new Client({ name: 'oubliette-test', version: '1.0.0' })
  const transport = new StreamableHTTPClientTransport(new URL('/mcp', server.url), {
    requestInit: { headers: { authorization: `Bearer ${token}` } },
  })
  await client.connect(transport)
  return {
    client,
    call: async (tool, args = {}) => {
      const result = await client.callTool({ name: tool, arguments: args })
      const texts = result.content.flatMap((part) => (part.type === 'text' ? [part.text] : []))
      return {
        structured: (result.structuredContent ?? {}) as Record<string, unknown>,
        is_error: result.isError === true,
        text: texts.join('\n'),
      }
    },
    close: () => client.close(),
  }
}
