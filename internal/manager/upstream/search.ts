// The search over the tools that a project may use, for agents that would otherwise load every definition. Words of the name,
// the description and the parameters count, in this order; where the database has trigrams, misspelt words match too.
import type { Db } from '../../store/open.ts'
import { searchAlike, searchByWords } from '../../store/rows/upstream/tools.ts'
import type { Catalog, Offer } from './catalog.ts'

const mostWords = 12
const mostFound = 200

export const wordsOf = (query: string): string[] => [
  ...new Set(
    query
      .slice(0, 500)
      .replace(/([a-z0-9])([A-Z])/g, '$1 $2')
      .toLowerCase()
      .match(/[\p{L}\p{N}]+/gu)
      ?.slice(0, mostWords) ?? [],
  ),
]

export function createToolSearch(deps: { db: Db; trigrams: () => Promise<boolean> }) {
  let trigrams: Promise<boolean> | undefined

  return async (
    { upstreams, offers }: Catalog,
    query: string,
    options: { limit: number; server?: string | undefined; isHidden: (name: string) => boolean },
  ): Promise<Offer[]> => {
    trigrams ??= deps.trigrams()
    const chosen = upstreams.filter(({ name }) => options.server === undefined || name === options.server)
    const ids = chosen.map(({ id }) => id)
    const isVisible = ({ tool }: Offer) => !options.isHidden(tool.visible_name)
    const words = wordsOf(query)
    if (words.length === 0)
      return [...offers.values()]
        .filter((offer) => ids.includes(offer.upstream.id) && isVisible(offer))
        .slice(0, options.limit)
    const asked = { upstream_ids: ids, words, limit: mostFound }
    const exact = await searchByWords(deps.db, asked)
    const alike = exact.length === 0 && (await trigrams) ? await searchAlike(deps.db, asked) : []
    const byTool = new Map(
      [...offers.values()].map((offer) => [`${offer.upstream.id} ${offer.tool.name}`, offer]),
    )
    return [...exact, ...alike]
      .map(({ upstream_id, name }) => byTool.get(`${upstream_id} ${name}`))
      .filter((offer) => offer !== undefined)
      .filter(isVisible)
      .slice(0, options.limit)
  }
}
