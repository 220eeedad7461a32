import { z } from 'zod'

export const since = z.iso.datetime({ offset: true }).transform((text) => new Date(text).toISOString())
