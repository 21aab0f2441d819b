import type { JSX } from "preact";
import { at, get } from "../api";
import { beat } from "../board";
import { clock, span } from "../format";
import { SleepBar } from "../plots";
import type { LedgerEntry, Row, Why } from "../types";
import { Empty, Trouble, useLoaded } from "../ui";
import { EventList, useEvents } from "./events";
import { WhyLines } from "./facts";

const WORDS: Record<LedgerEntry["kind"], string> = { created: "made", slept: "fell asleep", woke: "woke", restored: "went back", crashed: "crashed" };

/** Sleeps and wakes with their causes. */
export function Timeline({ row }: { row: Row }): JSX.Element {
  const why = useLoaded(() => get<Why>(at(row.id, "/why")), [row.id, row.since, row.state, Math.floor(beat.value / 3)]);
  const events = useEvents(row.id);
  const now = Date.now();
  const ledger = why.value ? [...why.value.ledger].sort((a, b) => b.at.localeCompare(a.at)) : [];
  return (
    <div class="timeline">
      {why.problem && <Trouble problem={why.problem} />}
      {why.value && (
        <article class="card">
          <h2>Now</h2>
          <WhyLines why={why.value} now={now} />
          <SleepBar ledger={why.value.ledger} now={now} state={row.state} />
        </article>
      )}
      <div class="columns">
        <article class="card">
          <h2>Sleeps and wakes</h2>
          {ledger.length === 0 && <Empty title="None yet" />}
          <ol class="ledger">
            {ledger.map((entry) => (
              <li key={entry.at} class={entry.kind}>
                <i aria-hidden="true" />
                <div>
                  <p><strong>{WORDS[entry.kind]}</strong>{entry.level && entry.kind === "slept" ? ` (${entry.level})` : ""}{entry.took_ms != null && <small> in {span(entry.took_ms)}</small>}</p>
                  {entry.cause && <p class="why">{entry.cause}</p>}
                </div>
                <div class="when"><time dateTime={entry.at}>{clock(entry.at)}</time><small>for {span(entry.lasted_ms)}</small></div>
              </li>
            ))}
          </ol>
        </article>
        <article class="card">
          <h2>Events</h2>
          <EventList events={events} />
        </article>
      </div>
    </div>
  );
}
