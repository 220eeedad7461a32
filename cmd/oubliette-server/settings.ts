// The whole config, for commands that start, stop or set up a server.
import { loadSettings, type Settings } from '../../internal/config/load.ts'
import { checkout } from './command.ts'

export const settings = (): Settings => loadSettings(process.env, checkout)

/** For commands that start a server: throws the first problem that prevents a start. */
export function serverSettings(): Settings {
  const loaded = settings()
  const [problem] = loaded.problems
  if (problem) throw problem
  return loaded
}
