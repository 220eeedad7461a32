// In order. A released migration is never edited: a change is a new migration. Functions and triggers are in `../functions`;
// those in migrations up to 0010 are earlier versions of them.
import type { Migration } from 'kysely/migration'
import { up as foundation } from './0001-foundation.ts'
import { up as sessions } from './0002-sessions.ts'
import { up as callers } from './0003-callers.ts'
import { up as schedules } from './0004-schedules.ts'
import { up as callerCalls } from './0005-caller-calls.ts'
import { up as suspects } from './0006-suspects.ts'
import { up as authority } from './0007-authority.ts'
import { up as spending } from './0008-spending.ts'
import { up as workspaceState } from './0009-workspace-state.ts'
import { up as quotas } from './0010-quotas.ts'
import { up as execs } from './0011-execs.ts'
import { up as auditIntents } from './0012-audit-intents.ts'
import { up as memory } from './0013-memory.ts'
import { up as mcpSessions } from './0015-mcp-sessions.ts'
import { up as sqlFunctions } from './0016-sql-functions.ts'
import { up as callerRequestAudit } from './0017-caller-request-audit.ts'

export const migrations: Record<string, Migration> = {
  '0001-foundation': { up: foundation },
  '0002-sessions': { up: sessions },
  '0003-callers': { up: callers },
  '0004-schedules': { up: schedules },
  '0005-caller-calls': { up: callerCalls },
  '0006-suspects': { up: suspects },
  '0007-authority': { up: authority },
  '0008-spending': { up: spending },
  '0009-workspace-state': { up: workspaceState },
  '0010-quotas': { up: quotas },
  '0011-execs': { up: execs },
  '0012-audit-intents': { up: auditIntents },
  '0013-memory': { up: memory },
  '0015-mcp-sessions': { up: mcpSessions },
  '0016-sql-functions': { up: sqlFunctions },
  '0017-caller-request-audit': { up: callerRequestAudit },
}
