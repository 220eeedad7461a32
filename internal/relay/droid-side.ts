// The methods that a droid's programs may call (CONTRACT, "Socket"). The container is known by its socket; the session
// by the key, which is checked on every request, because it ends with the session.
import { z } from 'zod'
import { Fault } from '../fault.ts'
import { type DroidMethod, type DroidParams, droidHello, droidMethods } from '../protocol/messages.ts'
import type { Call, Handlers } from '../protocol/peer.ts'
import { protocolVersion } from '../protocol/wire.ts'

export type DroidSide<Identity extends { session_id: string }> = {
  /** Who holds this key in this container; throws `unauthenticated`. */
  authenticate(project_id: string, api_key: string): Promise<Identity>
  droid: {
    [M in DroidMethod]: (identity: Identity, params: DroidParams<M>, call: Call) => Promise<unknown>
  }
}

export function parse<T>(schema: z.ZodType<T>, params: unknown, method: string): T {
  const parsed = schema.safeParse(params ?? {})
  if (parsed.success) return parsed.data
  const some = new z.ZodError(parsed.error.issues.slice(0, 5))
  throw new Fault('invalid', `${method}: ${z.prettifyError(some).replaceAll('\n', ' ')}`)
}

export function droidHandlers<Identity extends { session_id: string }>(options: {
  project_id: string
  handlers: DroidSide<Identity>
  is_supervisor(): boolean
  identified(session_id: string): void
}) {
  const { project_id, handlers } = options
  let kept_key: string | undefined

  async function identify(api_key: string | undefined): Promise<Identity> {
    if (options.is_supervisor()) throw new Fault('forbidden', 'a supervisor cannot call tools')
    if (api_key === undefined)
      throw new Fault('unauthenticated', 'missing session key', {
        hint: 'send the value of OUBLIETTE_API_KEY',
      })
    const identity = await handlers.authenticate(project_id, api_key)
    options.identified(identity.session_id)
    return identity
  }

  const methods: Handlers = {}
  for (const method of Object.keys(droidMethods) as DroidMethod[]) {
    methods[method] = async (raw, call) => {
      if (call.refused) throw call.refused
      const { api_key, ...params } = parse(
        droidMethods[method] as z.ZodType<{ api_key?: string }>,
        raw,
        method,
      )
      const identity = await identify(api_key ?? kept_key)
      const handler = handlers.droid[method] as (who: Identity, what: object, how: Call) => Promise<unknown>
      return handler(identity, params, call)
    }
  }

  return {
    methods,
    async hello(raw: unknown) {
      const hello = parse(droidHello, raw, 'hello')
      if (hello.protocol !== undefined && hello.protocol !== protocolVersion)
        throw new Fault(
          'conflict',
          `the client uses protocol version ${hello.protocol}, the server version ${protocolVersion}`,
          {
            hint: 'restart the container to get the client of this server',
          },
        )
      const { session_id } = await identify(hello.api_key)
      kept_key = hello.api_key
      return { protocol: protocolVersion, session_id }
    },
  }
}
