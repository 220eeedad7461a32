// An MCP server for LinkedIn, by stdio, made with the SDK. It is configured by LINKEDIN_* environment variables (see `settingsOf`),
// and used through Oubliette with this entry of `mcp-servers.json`:
//
//   "linkedin": {
//     "command": "node", "args": ["examples/linkedin-server/main.ts"], "run": "process",
//     "env": {
//       "LINKEDIN_CLIENT_ID": "…", "LINKEDIN_CLIENT_SECRET": "${env:LINKEDIN_CLIENT_SECRET}",
//       "LINKEDIN_REDIRECT_URI": "https://example.com/callback", "LINKEDIN_TOKEN_FILE": "/var/lib/linkedin/token.json"
//     }
//   }
import { McpServer } from '@modelcontextprotocol/server'
import { serveStdio } from '@modelcontextprotocol/server/stdio'
import { z } from 'zod'
import { createLinkedIn, settingsOf } from './linkedin.ts'

const linkedin = createLinkedIn(settingsOf(process.env))

const answer = <T extends Record<string, unknown>>(structuredContent: T) => ({
  content: [{ type: 'text' as const, text: JSON.stringify(structuredContent) }],
  structuredContent,
})

function newServer(): McpServer {
  const server = new McpServer({ name: 'linkedin', version: '1.0.0' })
  server.registerTool(
    'linkedin_generate_auth_url',
    {
      description:
        'Returns the URL at which the user authorizes access to LinkedIn. The browser then returns to the redirect URI with `code` and `state`, which linkedin_exchange_code needs.',
      inputSchema: z.object({}),
      outputSchema: z.object({ url: z.string() }),
      annotations: { readOnlyHint: true },
    },
    () => answer({ url: linkedin.authorizationUrl() }),
  )
  server.registerTool(
    'linkedin_exchange_code',
    {
      description:
        'Completes the authorization with the code and state of the redirect. The access token stays in the server. Returns its scope and how long it is valid.',
      inputSchema: z.object({ code: z.string().min(1).max(2000), state: z.string().min(1).max(200) }),
      outputSchema: z.object({ expires_in: z.number(), scope: z.string() }),
      annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false },
    },
    async ({ code, state }) => answer(await linkedin.exchange(code, state)),
  )
  server.registerTool(
    'linkedin_profile',
    {
      description: 'Returns id, name and email address of the authorized member.',
      inputSchema: z.object({}),
      annotations: { readOnlyHint: true },
    },
    async () => answer(await linkedin.profile()),
  )
  server.registerTool(
    'linkedin_post_text',
    {
      description: 'Publishes a text post in the name of the authorized member. Returns the id of the post.',
      inputSchema: z.object({
        text: z.string().min(1).max(3000),
        visibility: z.enum(['PUBLIC', 'CONNECTIONS']).default('PUBLIC'),
      }),
      outputSchema: z.object({ id: z.string() }),
      // Readers see it at once, and deleting it does not undo that: clients ask before they call it.
      annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
    },
    async ({ text, visibility }) => answer({ id: await linkedin.post(text, visibility) }),
  )
  return server
}

serveStdio(newServer)
