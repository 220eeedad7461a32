// Errors before a request reaches a server object: a JSON-RPC error with the HTTP status that the transport requires.
import { Fault, type Kind } from '../fault.ts'

const kindOf: Record<number, Kind> = { 404: 'not_found', 405: 'invalid', 409: 'conflict' }

export function rpcError(status: number, code: number, message: string): Response {
  const data = new Fault(kindOf[status] ?? 'invalid', message).shape()
  return Response.json({ jsonrpc: '2.0', id: null, error: { code, message, data } }, { status })
}
