// A daemon to be killed: takes the lock of the home, starts its PostgreSQL too on request, prints a line and stays.
// Usage: hold.ts lock|postgres HOME
import { lockHome } from '../../../internal/home-lock.ts'
import { createLog } from '../../../internal/log.ts'
import { startEmbedded } from '../../../internal/store/embedded/embedded.ts'

const [what, home] = process.argv.slice(2)
if (!home) throw new Error('which home?')
const lock = lockHome(home)
const embedded = what === 'postgres' ? await startEmbedded({ home, log: createLog() }) : undefined
process.on('SIGTERM', () => {
  lock.release()
  process.exit(0)
})
process.stdout.write(`holding ${embedded?.pid() ?? 0}\n`)
setInterval(() => undefined, 1 << 30)
