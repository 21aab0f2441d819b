/** All sandboxes, live: one stream, one change of the page for each of its messages. */

import { computed, signal } from "@preact/signals";
import { get, session } from "./api";
import type { OverviewChange, Row, Session } from "./types";

/** How many moments of activity are kept of each sandbox; one comes each second. */
export const KEPT = 120;

export interface Sample {
  cpu: number;
  memory: number;
  disk: number;
  awake: boolean;
}

/** What is known of sandboxes: kept apart from the page, so that it can be tested. */
export class Board {
  readonly rows = new Map<string, Row>();
  private readonly samples = new Map<string, Sample[]>();

  apply(change: OverviewChange): void {
    if (change.all) {
      const here = new Set(change.rows.map((row) => row.id));
      for (const id of [...this.rows.keys()]) if (!here.has(id)) this.forget(id);
    }
    for (const row of change.rows) this.rows.set(row.id, row);
    for (const id of change.gone) this.forget(id);
  }

  private forget(id: string): void {
    this.rows.delete(id);
    this.samples.delete(id);
  }

  /** Keeps what is known now as one more moment; nothing for what has slept as long as it was watched. */
  sample(): void {
    for (const row of this.rows.values()) {
      const awake = row.state !== "suspended";
      let kept = this.samples.get(row.id);
      if (!kept) {
        if (!awake) continue;
        kept = [];
        this.samples.set(row.id, kept);
      }
      kept.push({ cpu: awake ? row.cpu : 0, memory: row.memory, disk: row.disk, awake });
      if (kept.length > KEPT) kept.shift();
    }
  }

  activity(id: string): readonly Sample[] {
    return this.samples.get(id) ?? [];
  }
}

const board = new Board();
const version = signal(0);

/** Whether the stream is there; the page says so if it is not. */
export const live = signal(true);
/** Grows once a second, so that ages and lines of activity move. */
export const beat = signal(0);
/** Whether the first message has come. */
export const loaded = signal(false);

export const rows = computed<Row[]>(() => {
  void version.value;
  return [...board.rows.values()];
});

export const byName = computed(() => new Map(rows.value.map((row) => [row.name, row])));

export function activity(id: string): readonly Sample[] {
  void beat.value;
  return board.activity(id);
}

let source: EventSource | undefined;
let clock: ReturnType<typeof setInterval> | undefined;

function open(): void {
  if (source || document.hidden || !session.value?.logged_in) return;
  source = new EventSource("/v1/overview/watch");
  source.onmessage = (message) => {
    live.value = true;
    board.apply(JSON.parse(message.data as string) as OverviewChange);
    loaded.value = true;
    version.value += 1;
  };
  source.onerror = () => {
    live.value = false;
    // A browser tries again by itself, unless it was refused: then somebody must log in, or the daemon starts just now.
    if (source?.readyState === EventSource.CLOSED) {
      close();
      setTimeout(() => void reopen(), 2000);
    }
  };
}

async function reopen(): Promise<void> {
  try {
    session.value = await get<Session>("/v1/session");
    open();
  } catch {
    setTimeout(() => void reopen(), 2000);
  }
}

function close(): void {
  source?.close();
  source = undefined;
}

/** Watches while the page is to be seen: what nobody looks at costs the daemon nothing. */
export function watch(): () => void {
  const seen = () => (document.hidden ? close() : open());
  document.addEventListener("visibilitychange", seen);
  open();
  clock ??= setInterval(() => {
    if (document.hidden) return;
    board.sample();
    beat.value += 1;
  }, 1000);
  return () => {
    document.removeEventListener("visibilitychange", seen);
    clearInterval(clock);
    clock = undefined;
    close();
  };
}
