// Refusals that are made before a server object is asked: a JSON-RPC error with the status that the transport wants.
import { Fault, type Kind } from '../fault.ts'

const kindOf: Record<number, Kind> = { 404: 'not_found', 405: 'invalid', 409: 'conflict' }

export function rpcError(status: number, code: number, message: string): Response {
  const data = new Fault(kindOf[status] ?? 'invalid', message).shape()
  return Response.json({ jsonrpc: '2.0', id: null, error: { code, message, data } }, { status })
}
