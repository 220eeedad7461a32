// The container's side of the way to the models, as the supervisor has it: a process of its own.
import { listenForModels } from '../../cmd/oubliette-client/supervise/models.ts'
import { createLog } from '../../internal/log.ts'

const { url } = await listenForModels(process.argv[2]!, createLog({ level: 'error' }))
process.send?.({ url })
// A benchmark that fails must not leave it behind.
process.once('disconnect', () => process.exit(0))
