// Clones the remote of a project with git in the container. It can be interrupted at any point and repeated: git clones into a
// separate directory in an otherwise empty workspace; the complete clone is renamed, and then its entries are moved into place,
// each by a rename.
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
  # Cloned, but the server ended before it recorded that.
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

/** The error output of git, with the address of the remote instead of that of the proxy. */
function gitError(stderr: string, exit_code: number, remote_url: string): string {
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
      : `git: ${gitError(stderr, exit_code, remote_url)}`
  }
}
