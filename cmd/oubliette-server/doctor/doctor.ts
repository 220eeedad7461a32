// `./oubliette doctor`: checks what a server needs, whether it runs or not, and names the cause and the command that mends it.
import { messageOf } from '../../../internal/fault.ts'
import { mask } from '../../../internal/log.ts'
import { type Command, options, Usage, version } from '../command.ts'
import { leftovers, providers, upstreams } from './checks/outside.ts'
import { address, config, node, server } from './checks/place.ts'
import { clock, database, engine, images } from './checks/services.ts'
import { disk, locks, permissions } from './checks/storage.ts'
import { gatherFacts } from './facts.ts'
import { type Check, type Checked, plural, runCheck, worst } from './finding.ts'
import { jsonOf, lineOf, textOf } from './report.ts'

const checks: Check[] = [
  ...[node, config, permissions, locks, disk, engine, images, database, clock],
  ...[server, address, leftovers, providers, upstreams],
]
/** Those whose findings `--fix` may change. */
const fixing = [permissions, locks, leftovers]
const exitMs = 500

type Fixed = { check: string; message: string; done: boolean }

async function fix(offline: boolean): Promise<Fixed[]> {
  const facts = gatherFacts(process.env, offline)
  const found = await Promise.all(fixing.map((check) => runCheck(check, facts)))
  const fixed: Fixed[] = []
  for (const { check, findings } of found)
    for (const { message, fix } of findings) {
      if (!fix) continue
      try {
        fixed.push({ check, message: await fix(), done: true })
      } catch (error) {
        fixed.push({ check, message: `failed to fix "${message}": ${messageOf(error)}`, done: false })
      }
    }
  return fixed
}

function summary(checked: Checked[]): string {
  const findings = checked.flatMap((one) => one.findings)
  const count = (status: string) => findings.filter((one) => one.status === status).length
  const fixable = findings.filter((one) => one.fix).length
  const text = `${plural(count('problem'), 'problem')}, ${plural(count('warning'), 'warning')}`
  return `\n${text}.${fixable > 0 ? ` "./oubliette doctor --fix" mends ${plural(fixable, 'of them', 'of them')}.` : ''}\n`
}

async function run(args: string[]): Promise<number> {
  const { values } = options(args, {
    fix: { type: 'boolean', default: false },
    offline: { type: 'boolean', default: false },
    output: { type: 'string', short: 'o', default: 'text' },
  })
  if (!['text', 'json'].includes(values.output))
    throw new Usage(`unknown format "${values.output}"`, 'formats: text, json')
  const isText = values.output === 'text'
  const write = (text: string) => process.stdout.write(mask(text))
  const fixed = values.fix ? await fix(values.offline) : []
  if (isText)
    for (const { check, message, done } of fixed) write(lineOf(done ? 'fixed' : 'problem', check, message))
  const facts = gatherFacts(process.env, values.offline)
  const running = checks.map((check) => runCheck(check, facts))
  const checked: Checked[] = []
  for (const one of running) {
    checked.push(await one)
    if (isText) write(textOf(checked.at(-1)!))
  }
  const status = worst(checked)
  if (isText) write(summary(checked))
  else {
    const report = { status, version: version(), home: facts.home, fixed, checks: jsonOf(checked) }
    write(`${JSON.stringify(report, null, 2)}\n`)
  }
  const code = status === 'problem' || fixed.some(({ done }) => !done) ? 1 : 0
  // A request that hangs would keep the process alive.
  setTimeout(() => process.exit(code), exitMs).unref()
  return code
}

export const doctor: Command = {
  about: 'Check this machine and the server, and name what to do',
  usage: '[OPTIONS]',
  details: `Works with the server running and stopped. Each check has a deadline: an engine or a database that hangs does not delay the others. The exit code is 1 if there is a problem, otherwise 0.

--fix only sets modes of secret files and of the home, creates missing directories of the home, removes locks that no process holds, and removes containers, networks and volumes of this instance that belong to no project. It never touches workspaces or rows.`,
  options: [
    ['--fix', 'Make the harmless changes first, then check'],
    ['--offline', 'Send nothing to model providers'],
    ['-o, --output FORMAT', 'text or json'],
  ],
  examples: ['./oubliette doctor', './oubliette doctor --fix', './oubliette doctor --offline -o json'],
  run,
}
