import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { get } from "../api";
import { clock, span } from "../format";
import { to } from "../route";
import type { Event } from "../types";
import { complain, Empty } from "../ui";

const KEPT = 300;
const KINDS = [
  "creating", "created", "woken", "suspended", "crashed", "checkpointed", "restored", "forked", "moved", "changed", "strained", "terminated",
  "daemon_restarted", "host_short", "network_repaired",
];

/** What happens, as it happens; of one sandbox or of all. */
export function useEvents(sandbox?: string): Event[] {
  const [events, setEvents] = useState<Event[]>([]);
  useEffect(() => {
    let source: EventSource | undefined;
    let stopped = false;
    const of = sandbox ? `&sandbox=${encodeURIComponent(sandbox)}` : "";
    const add = (event: Event) => setEvents((before) => (before.some((one) => one.id === event.id) ? before : [event, ...before].slice(0, KEPT)));
    const start = async () => {
      // The log may be long; only its end is shown.
      const page = await get<{ items: Event[] }>(`/v1/events?follow=false${of}`);
      if (stopped) return;
      setEvents(page.items.slice(-KEPT).reverse());
      source = new EventSource(`/v1/events?after=${page.items.at(-1)?.id ?? 0}${of}`);
      for (const kind of KINDS) {
        source.addEventListener(kind, (message) => add(JSON.parse((message as MessageEvent<string>).data) as Event));
      }
    };
    start().catch(complain);
    return () => {
      stopped = true;
      source?.close();
    };
  }, [sandbox]);
  return events;
}

export function Events(): JSX.Element {
  const events = useEvents();
  return (
    <section class="page" aria-labelledby="events-title">
      <div class="head"><h1 id="events-title">Events</h1></div>
      {events.length === 0 ? <Empty title="Nothing has happened yet" /> : <EventList events={events} named />}
    </section>
  );
}

export function EventList({ events, named }: { events: readonly Event[]; named?: boolean }): JSX.Element {
  return (
    <ol class="events">
      {events.map((event) => (
        <li key={event.id}>
          <time dateTime={event.at} title={new Date(event.at).toLocaleString()}>{clock(event.at)}</time>
          <span class={`kind ${event.kind}`}>{event.kind}</span>
          {named && (event.name ? <a href={to({ place: "sandbox", name: event.name, tab: "overview" })}>{event.name}</a> : <span>host</span>)}
          <span class="why">{event.reason}</span>
          <small>{event.receipt ? `took ${span(event.receipt.total_ms)}` : ""}</small>
        </li>
      ))}
    </ol>
  );
}
