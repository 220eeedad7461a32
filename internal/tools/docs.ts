// docs/tools.md and docs/configuration.md, made of the declarations. `./oubliette docs` writes them, a test compares them.
import { couldAllow, formatScope, type Need, needs, parseScope, type Scope } from '../auth/scope.ts'
import { configSchema } from '../config/schema.ts'
import { boundaries } from '../manager/project/boundaries.ts'
import { fieldTable, tableLines } from './docs-table.ts'
import type { Action, Tool } from './tool.ts'

const note = '<!-- Made by `./oubliette docs`. Change the declarations, not this file. -->'
const somebody = '00000000-0000-4000-8000-000000000000'
const scopes: Scope[] = ['admin', 'admin:ro', `project:${somebody}`, `project:${somebody}:ro`].map(parseScope)

function cell(scope: Scope, need: Need): string {
  if (!couldAllow(scope, need)) return 'no'
  return scope.kind === 'project' && need.startsWith('project:') ? 'its own project' : 'yes'
}

const nameOf = (tool: Tool, action: string) => (tool.unified ? `${tool.name} ${action}` : tool.name)

function matrix(tools: Tool[]): string {
  const names = scopes.map((scope) => `\`${formatScope(scope).replace(somebody, 'X')}\``)
  const rows = needs.flatMap((need) => {
    const actions = tools.flatMap((tool) =>
      Object.entries(tool.actions).flatMap(([name, action]) =>
        action.needs === need ? [`\`${nameOf(tool, name)}\``] : [],
      ),
    )
    return actions.length === 0
      ? []
      : [[`\`${need}\``, ...scopes.map((scope) => cell(scope, need)), actions.join(', ')]]
  })
  return tableLines([['needs', ...names, 'actions'], Array(scopes.length + 2).fill('---'), ...rows])
}

function fieldsOfProjects(): string {
  const rows = Object.entries(boundaries).map(([field, rule]) => [
    `\`${field}\``,
    'yes',
    rule.by === 'tighten' ? `only tighter: ${rule.how}` : rule.by === 'project' ? 'yes' : 'no',
  ])
  return tableLines([['field', '`admin`', '`project:X`'], ['---', '---', '---'], ...rows])
}

function traits(action: Action): string {
  const words = [
    `needs \`${action.needs}\``,
    ...(action.destructive ? ['destructive'] : []),
    ...(action.idempotent ? ['safe to repeat'] : []),
  ]
  return `*${words.join(' · ')}*`
}

function actionSection(tool: Tool, name: string, action: Action): string[] {
  const takesNothing = Object.keys(action.input.shape).length === 0
  return [
    ...(tool.unified ? [`### \`${nameOf(tool, name)}\``, action.about] : []),
    traits(action),
    takesNothing ? 'Takes no fields.' : fieldTable(action.input, 'input'),
    'Answers with',
    fieldTable(action.output, 'output'),
  ]
}

const toolSection = (tool: Tool): string[] => [
  `## \`${tool.name}\``,
  tool.about,
  ...Object.entries(tool.actions).flatMap(([name, action]) => actionSection(tool, name, action)),
]

function toolsPage(tools: Tool[]): string[] {
  return [
    '# Tools',
    note,
    'Every tool is offered over MCP at `/mcp`, to droids in containers, and as a command (`./oubliette project list`). A tool with several actions takes `action`; each action takes exactly the fields of its table. Answers are structured, and the same as JSON text. A failed call is `isError` with `error: {kind, message, hint?, id}`; the kinds are invalid, unauthenticated, forbidden, not_found, conflict, exhausted, unavailable, timeout and internal.',
    '## Who may do what',
    "A token has one scope. What its scope can never use is not listed to it; somebody else's project, and all that is in it, is `not_found`.",
    matrix(tools),
    'What a token may change of a project depends on the field. A session may not set `api_scope_grant`, whatever its scope. In a project that has a grant, everything that needs `project:write` also needs a scope that covers the grant.',
    fieldsOfProjects(),
    ...tools.flatMap(toolSection),
  ]
}

const environment = [
  [
    '`OUBLIETTE_HOME`',
    'Where config, data, sockets and `admin.token` are. `./.oubliette` in a checkout, else `~/.oubliette`.',
  ],
  ['`OUBLIETTE_ADDRESS`', 'Where the HTTP server listens; wins over `address`.'],
  ['`OUBLIETTE_ADMIN_TOKEN`', 'The admin token (`oub_` and 64 hexadecimal digits) instead of a minted one.'],
  [
    '`DATABASE_URL`',
    'A PostgreSQL, 15 or newer. Without it the server runs one of its own in `OUBLIETTE_HOME/postgres`, on a Unix socket. A home remembers the database of its first start and refuses another.',
  ],
  ['`DOCKER_HOST`', 'The Docker engine, if it is not at its default socket.'],
]

function configurationPage(): string[] {
  return [
    '# Configuration',
    note,
    'The config file is `oubliette.jsonc` in `OUBLIETTE_HOME`: JSON with comments and trailing commas. It may be missing, and every key may be left out. An unknown key or a wrong value is refused at the start with one line that names it. A file that holds a secret must be readable by its owner only (mode 0600); a credential whose environment variable is not set is named in the log.',
    '## Keys',
    fieldTable(configSchema, 'input'),
    '## Environment',
    tableLines([['variable', 'meaning'], ['---', '---'], ...environment]),
  ]
}

/** By path in the checkout. */
export function renderDocs(tools: Record<string, Tool>): Record<string, string> {
  const page = (parts: string[]) => `${parts.join('\n\n')}\n`
  return {
    'docs/tools.md': page(toolsPage(Object.values(tools))),
    'docs/configuration.md': page(configurationPage()),
  }
}
