// The search over tools of upstreams: full text, and trigrams where the database has the extension or permits its creation.
import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table upstream_tools add column words tsvector not null default ''::tsvector`.execute(db)
  await sql`alter table upstream_tools add column search_text text not null default ''`.execute(db)
  await sql`create index upstream_tools_words on upstream_tools using gin (words)`.execute(db)
  // A user without the right to create extensions searches by words only.
  await sql`
    do $$ begin
      create extension if not exists pg_trgm;
    exception when others then
      null;
    end $$`.execute(db)
}
