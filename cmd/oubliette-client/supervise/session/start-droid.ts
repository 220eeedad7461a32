// Starts the droid of a start command, with its environment.
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { setUpAgent } from '../../../../internal/agents/agents.ts'
import { type AcpOptions, startAcp } from '../../../../internal/droid/acp/acp.ts'
import type { Droid, Sink } from '../../../../internal/droid/droid.ts'
import { startShell } from '../../../../internal/droid/shell.ts'
import { Fault } from '../../../../internal/fault.ts'
import type { StartSession } from '../../../../internal/protocol/messages.ts'
import type { Environment } from '../../environment.ts'
import { withGit } from '../git.ts'

const isInstalled = (command: string, path = ''): boolean =>
  command.includes('/') ? existsSync(command) : path.split(':').some((it) => existsSync(join(it, command)))

/** For a server that sends none. */
const defaultLimits = { answer_seconds: 60, silence_seconds: 3600 }

export function startDroid(command: StartSession, environment: Environment, sink: Sink): Droid {
  const { session_id, workspace_dir, droid } = command
  const own = {
    OUBLIETTE_SESSION_ID: session_id,
    OUBLIETTE_SOCKET: environment.socket,
    OUBLIETTE_MODELS_URL: environment.models_url,
    OUBLIETTE_MCP_PORT: String(environment.mcp_port),
    ...(command.api_key === undefined ? {} : { OUBLIETTE_API_KEY: command.api_key }),
  }
  const given = { ...droid.env, ...command.env, ...own }
  const env: Record<string, string> = withGit({ ...environment.env, ...given }, environment, command.api_key)
  if (droid.kind === 'shell')
    return startShell({
      session_id,
      workspace_dir,
      env,
      scratch_dir: join(environment.scratch_dir, session_id),
      pipes: environment.pipes,
      sink,
    })
  if (droid.command === undefined) throw new Fault('invalid', 'a droid of kind acp requires a command')
  if (!isInstalled(droid.command, env.PATH))
    throw new Fault(
      'invalid',
      `${droid.command} is not installed in this container${droid.image ? `; the container type "${droid.image}" includes it` : ''}`,
    )
  const directory = join(environment.scratch_dir, session_id)
  mkdirSync(directory, { recursive: true, mode: 0o700 })
  const { provider, api_key, model, reasoning_level } = command
  const setup = setUpAgent(droid.agent, {
    ...(provider && api_key
      ? { provider: { name: provider, url: `${environment.models_url}/${provider}`, key: api_key } }
      : {}),
    ...(model === undefined ? {} : { model }),
    ...(reasoning_level === undefined ? {} : { reasoning_level }),
    tools_allowed: command.tools_allowed ?? [],
    tools_disallowed: command.tools_disallowed ?? [],
    autonomy: command.autonomy ?? 'off',
    directory,
    home: env.HOME ?? homedir(),
    ...(command.resume ? { resume: command.resume.agent_session_id } : {}),
  })
  setup.before?.()
  for (const [name, content] of Object.entries(setup.files ?? {}))
    writeFileSync(join(directory, name), content, { mode: 0o600 })
  const options: AcpOptions = {
    session_id,
    workspace_dir,
    // The config overrides the agent's own settings.
    env: withGit({ ...environment.env, ...setup.env, ...given }, environment, command.api_key),
    command: droid.command,
    marked: isInstalled('bash', env.PATH),
    args: [...(droid.args ?? []), ...(setup.args ?? [])],
    autonomy: command.autonomy ?? 'off',
    setup,
    ...(command.agent_limits ?? defaultLimits),
    ...(command.resume ? { resume: command.resume } : {}),
    mcp_servers: [{ name: 'oubliette', ...environment.client, env: own }],
    sink,
  }
  const start = () => startAcp(options)
  return setup.first_alone ? environment.first_alone(droid.command, start) : start()
}
