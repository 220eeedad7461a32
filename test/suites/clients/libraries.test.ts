// Applications reach the server with the SDK, with a bridge to stdio or with the Inspector, each from its npm package.
import { bridgeCases } from '../../fixtures/clients/bridges.ts'
import { installClients } from '../../fixtures/clients/packages.ts'
import { scenario } from '../../fixtures/clients/scenario.ts'
import { sdkCases } from '../../fixtures/clients/sdks.ts'

scenario([...sdkCases, ...bridgeCases], () => installClients('small'))
