// Where each MCP client keeps its servers, and how it names one. Adding a client takes one entry here.
import { homedir, platform } from 'node:os'
import { join } from 'node:path'

/** `http` for clients that connect themselves, `program` for those that start a program on stdio. */
export type Connection = { url: string; token: string; program: string[] }

export type Client = {
  title: string
  /** Path of its configuration file. */
  file(env: NodeJS.ProcessEnv): string
  /** Keys of the object that holds the servers; undefined for TOML. */
  path: string[] | undefined
  entry(to: Connection): Record<string, unknown>
  /** What to do after the file was written. */
  next_step: string
}

const homeIn = (env: NodeJS.ProcessEnv) => env.HOME || homedir()

/** The directory of application settings of the operating system. */
function settings(env: NodeJS.ProcessEnv): string {
  if (platform() === 'darwin') return join(homeIn(env), 'Library', 'Application Support')
  if (platform() === 'win32') return env.APPDATA || join(homeIn(env), 'AppData', 'Roaming')
  return env.XDG_CONFIG_HOME || join(homeIn(env), '.config')
}

const headers = (token: string) => ({ Authorization: `Bearer ${token}` })

export const clients: Record<string, Client> = {
  'claude-code': {
    title: 'Claude Code',
    file: (env) =>
      env.CLAUDE_CONFIG_DIR ? join(env.CLAUDE_CONFIG_DIR, '.claude.json') : join(homeIn(env), '.claude.json'),
    path: ['mcpServers'],
    entry: ({ url, token }) => ({ type: 'http', url, headers: headers(token) }),
    next_step: 'start a new session of claude; "/mcp" shows the connection',
  },
  'claude-desktop': {
    title: 'Claude Desktop',
    file: (env) => join(settings(env), 'Claude', 'claude_desktop_config.json'),
    path: ['mcpServers'],
    entry: ({ url, token, program: [command, ...args] }) => ({
      command,
      args,
      env: { OUBLIETTE_URL: url, OUBLIETTE_TOKEN: token },
    }),
    next_step: 'restart Claude Desktop',
  },
  cursor: {
    title: 'Cursor',
    file: (env) => join(homeIn(env), '.cursor', 'mcp.json'),
    path: ['mcpServers'],
    entry: ({ url, token }) => ({ url, headers: headers(token) }),
    next_step: 'enable the server in the MCP settings of Cursor',
  },
  vscode: {
    title: 'Visual Studio Code',
    file: (env) => join(settings(env), 'Code', 'User', 'mcp.json'),
    path: ['servers'],
    entry: ({ url, token }) => ({ type: 'http', url, headers: headers(token) }),
    next_step: 'start the server with the command "MCP: List Servers"',
  },
  codex: {
    title: 'Codex',
    file: (env) => join(env.CODEX_HOME || join(homeIn(env), '.codex'), 'config.toml'),
    path: undefined,
    // By default it ends every call after 300 s, with progress or without.
    entry: ({ url, token }) => ({ url, http_headers: headers(token), tool_timeout_sec: 3600 }),
    next_step: 'start a new session of codex',
  },
  gemini: {
    title: 'Gemini CLI',
    file: (env) => join(homeIn(env), '.gemini', 'settings.json'),
    path: ['mcpServers'],
    entry: ({ url, token }) => ({ httpUrl: url, headers: headers(token) }),
    next_step: 'start a new session of gemini; "/mcp" shows the connection',
  },
  opencode: {
    title: 'OpenCode',
    file: (env) => join(env.XDG_CONFIG_HOME || join(homeIn(env), '.config'), 'opencode', 'opencode.json'),
    path: ['mcp'],
    entry: ({ url, token }) => ({ type: 'remote', url, headers: headers(token), enabled: true }),
    next_step: 'start a new session of opencode',
  },
}
