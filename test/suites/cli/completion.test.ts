// The completion scripts in the shells they are for, against a running server. A name is chosen by a tenant: no shell may
// evaluate it.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Booted, boot } from '../../harness/booted.ts'

const checkout = resolve(import.meta.dirname, '../../..')
let booted: Booted
let scratch: string
let mark: string

beforeAll(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'oub-complete-'))
  mark = join(scratch, 'mark')
  booted = await boot()
  await booted.project({ name: 'newest' })
  await booted.project({ name: 'my site' })
  await booted.project({ name: 'evil$(touch $HOME/mark)`touch $HOME/mark`;touch $HOME/mark' })
})
afterAll(async () => {
  await booted?.stop()
  await rm(scratch, { recursive: true, force: true })
})

const isThere = (shell: string) => {
  const found = spawnSync(shell, ['--version']).status === 0
  if (!found) console.log(`skipped: ${shell} is not installed`)
  return found
}

async function inShell(shell: string, args: string[]): Promise<string> {
  const child = spawn(shell, args, {
    cwd: checkout,
    env: {
      ...process.env,
      PATH: `${join(process.execPath, '..')}:${process.env.PATH}`,
      HOME: scratch,
      XDG_CONFIG_HOME: scratch,
      XDG_DATA_HOME: scratch,
      OUBLIETTE_HOME: booted.server.home,
      OUBLIETTE_ADDRESS: new URL(booted.server.url).host,
      OUBLIETTE_TOKEN: booted.server.admin_token,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
    signal: AbortSignal.timeout(40_000),
  })
  let out = ''
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => {
      out += text
    })
  await once(child, 'close')
  return out
}

test.runIf(isThere('bash'))('bash completes commands and live names', async () => {
  const complete = (...words: string[]) =>
    inShell('bash', [
      '--norc',
      '-c',
      `source <(./oubliette completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _oubliette; printf '%s\\n' "\${COMPREPLY[@]}"`,
      'bash',
      './oubliette',
      ...words,
    ])
  expect(await complete('comp')).toBe('completion\n')
  expect(await complete('project', 'get', 'NEW')).toBe('newest\n')
  expect(await complete('project', 'get', 'my')).toBe('my\\ site\n')
  expect(await complete('workspace', 'delete', 'newest', '')).toBe('default\n')
  expect(await complete('project', 'get', 'evil')).toContain('evil\\$\\(touch')
  expect(existsSync(mark)).toBe(false)
})

test.runIf(isThere('fish'))('fish completes commands and live names', async () => {
  const complete = (line: string) =>
    inShell('fish', ['--no-config', '-c', `./oubliette completion fish | source; complete -C '${line}'`])
  expect(await complete('./oubliette comp')).toContain('completion')
  expect(await complete('./oubliette project get new')).toContain('newest')
  expect(await complete('./oubliette workspace delete newest ')).toContain('default')
  expect(await complete('./oubliette project get ')).toContain('my site')
  expect(await complete('./oubliette project get evil')).toContain('evil$(touch')
  expect(existsSync(mark)).toBe(false)
})

test.runIf(isThere('zsh'))('zsh completes commands and live names in a terminal', async () => {
  // An interactive zsh in a pseudo-terminal of another: after the tab key, the line becomes the argument of `print`.
  const file = join(scratch, 'drive.zsh')
  await writeFile(
    file,
    `zmodload zsh/zpty
zpty -b inner zsh -f -i
await() {
  local all chunk
  repeat 300; do
    while zpty -r -t inner chunk; do all+=$chunk; done
    [[ $all == *$1* ]] && { print -r -- "$all"; return 0 }
    sleep 0.1
  done
  print -r -- "missing $1 in: $all"
}
zpty -w inner 'PS1="> "; bindkey -e; autoload -U compinit; compinit -u -D; source <(./oubliette completion zsh); stty columns 500; print REA""DY'
await READY >/dev/null
for start in "project get new" "project get my" "workspace delete newest d" "project get evil"; do
  zpty -n -w inner "./oubliette $start"$'\\t'
  zpty -n -w inner $'\\x01print -r -- GO""T: \\x05:EN""D\\n'
  await :END
done
zpty -d inner
`,
  )
  const out = await inShell('zsh', ['-f', file])
  const lines = [...out.matchAll(/GOT: (.*?):END/g)].map(([, line]) => line!.trim())
  expect(lines.slice(0, 3)).toEqual([
    './oubliette project get newest',
    './oubliette project get my site',
    './oubliette workspace delete newest default',
  ])
  expect(lines[3]).toContain('evil$(touch')
  expect(existsSync(mark)).toBe(false)
})
