// The clone of a project's remote, by git in the container itself. It can be cut short at any point and repeated: git works in
// a directory of its own beside which nothing else may be; when that is complete it gets another name, and only then are its
// entries moved into place, each by a rename.
import { isProxied } from '../../git/remote.ts'
import { defaultWorkspace } from '../../ids.ts'
import type { ExecCommand } from '../../protocol/messages.ts'
import type { SupervisorOf } from '../exec/supervised.ts'
import type { GitUse } from '../project/git-use.ts'
import { containerPaths } from './layout.ts'

const cloneSeconds = 600
const shownCharacters = 1000

const script = `
part=.oubliette-clone.part
whole=.oubliette-clone
rm -rf "$part" || exit
if [ ! -e "$whole" ]; then
  # Cloned, but the server ended before it heard of it.
  if [ -e .git ] && [ "$(git --git-dir=.git config --get remote.origin.url)" = "$1" ]; then exit 0; fi
  if [ -n "$(ls -A)" ]; then
    echo "the workspace is not empty: move its files away and start the container again" >&2
    exit 1
  fi
  git clone --quiet -- "$1" "$part" || exit
  mv "$part" "$whole" || exit
fi
for entry in "$whole"/* "$whole"/.[!.]* "$whole"/..?*; do
  if [ -e "$entry" ] || [ -L "$entry" ]; then mv -- "$entry" . || exit; fi
done
rmdir "$whole" && [ -e .git ]
`

/** What git said, with the remote's own address instead of that of the proxy. */
function said(stderr: string, exit_code: number, remote_url: string): string {
  const lines = stderr
    .replace(/http:\/\/127\.0\.0\.1:\d+\/git\/remote\/?/g, remote_url)
    .split(/[\r\n]+/)
    .map((line) => line.replace(/\p{Cc}+/gu, ' ').trim())
    .filter((line) => line !== '')
  return lines.slice(-3).join('; ').slice(0, shownCharacters) || `exit code ${exit_code}`
}

export function createClone(deps: { supervisorOf: SupervisorOf; git: GitUse }) {
  return async function clone(
    project_id: string,
    remote_url: string,
    signal: AbortSignal | undefined,
  ): Promise<string | null> {
    const link = await deps.supervisorOf(project_id, signal)
    using issued = isProxied(remote_url) ? deps.git.issue(project_id, ['git-upload-pack']) : undefined
    const command: ExecCommand = {
      command: ['sh', '-c', script, 'clone', remote_url],
      working_dir: `${containerPaths.workspaces}/${defaultWorkspace}`,
      env: { GIT_TERMINAL_PROMPT: '0' },
      timeout_seconds: cloneSeconds,
      output_bytes: 16_384,
      ...(issued ? { git_key: issued.key } : {}),
    }
    const { exit_code, stderr, timed_out } = await link.send('exec', command, { signal })
    if (exit_code === 0) return null
    return timed_out
      ? `git clone took longer than ${cloneSeconds} s`
      : `git: ${said(stderr, exit_code, remote_url)}`
  }
}
