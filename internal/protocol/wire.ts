// The constants that both ends of the socket share. No library here: the supervisor, which runs in every container and has to
// stay small, imports this file and only the types of `messages.ts`.
import { Fault, type Kind, kinds, toFault } from '../fault.ts'

/** Incremented when clients and servers of different versions become incompatible. */
export const protocolVersion = 1

export const codes = {
  parse: -32700,
  request: -32600,
  method: -32601,
  params: -32602,
  execution: -32000,
  key: -32001,
  scope: -32002,
} as const

/** Where the container finds things; the server mounts them there. */
export const places = {
  directory: '/run/oubliette',
  socket: 'relay.sock',
  proof: 'proof',
} as const

/** The reason a supervisor reports for sessions of a previous run; the server may know a better one. */
export const restartedReason = 'container restarted'

/** Path of the connection that carries the bytes of a terminal; its key follows. */
export const terminalPath = '/terminals/'

/** Port of the model listener on the container's loopback. */
export const modelsPort = 4141

export type WireError = { code: number; message: string; data?: unknown }

const codeOf: Partial<Record<Kind, number>> = {
  invalid: codes.params,
  unauthenticated: codes.key,
  forbidden: codes.scope,
}

export function toWireError(thrown: unknown): WireError {
  const fault = toFault(thrown)
  return { code: codeOf[fault.kind] ?? codes.execution, message: fault.message, data: fault.shape() }
}

/** Converts the peer's error to a fault, by its kind if it has one, else by its code. */
export function fromWireError(error: WireError): Fault {
  const data = (typeof error.data === 'object' && error.data !== null ? error.data : {}) as {
    kind?: unknown
    hint?: unknown
  }
  const named = kinds.find((kind) => kind === data.kind)
  const byCode: Record<number, Kind> = {
    [codes.params]: 'invalid',
    [codes.method]: 'invalid',
    [codes.key]: 'unauthenticated',
    [codes.scope]: 'forbidden',
  }
  return new Fault(named ?? byCode[error.code] ?? 'internal', error.message, {
    ...(typeof data.hint === 'string' ? { hint: data.hint } : {}),
    cause: error,
  })
}
