/** All sandboxes. Only the rows that are to be seen are in the page, however many there are. */

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { activity, beat, loaded, rows } from "../board";
import { ago, bytes, share } from "../format";
import { moves, toFind } from "../keys";
import { Sparkline } from "../plots";
import { go, to } from "../route";
import type { Row } from "../types";
import { Button, Empty, stateText, StateMark } from "../ui";
import { creating } from "./create";

const HEIGHT = 60;
/** Rows above and below what is seen, so that a quick hand finds no gap. */
const MORE = 6;

type Sort = "name" | "state" | "memory" | "disk" | "cpu" | "created_at";
const SORTS: [Sort, string][] = [["name", "Name"], ["state", "State"], ["cpu", "Activity"], ["memory", "Memory"], ["disk", "Disk"], ["created_at", "Age"]];

const filter = signal("");
const kind = signal<"all" | "awake" | "asleep">("all");
const sort = signal<Sort>("name");
const picked = signal<string | undefined>(undefined);

export function arranged(all: readonly Row[], text: string, which: typeof kind.value, by: Sort): Row[] {
  const wanted = text.trim().toLowerCase();
  const fits = (row: Row) =>
    (which === "all" || (which === "asleep") === (row.state === "suspended")) &&
    (!wanted || `${row.name} ${row.id} ${row.template} ${Object.entries(row.labels ?? {}).map(([key, value]) => `${key}=${value}`).join(" ")}`.toLowerCase().includes(wanted));
  const order = (a: Row, b: Row): number => {
    switch (by) {
      case "cpu": case "memory": case "disk": return b[by] - a[by] || a.name.localeCompare(b.name);
      case "state": return stateText(b.state, b.level).localeCompare(stateText(a.state, a.level)) || a.name.localeCompare(b.name, undefined, { numeric: true });
      case "created_at": return b.created_at.localeCompare(a.created_at);
      case "name": return a.name.localeCompare(b.name, undefined, { numeric: true });
    }
  };
  return all.filter(fits).sort(order);
}

export function Sandboxes(): JSX.Element {
  const shown = useMemo(() => arranged(rows.value, filter.value, kind.value, sort.value), [rows.value, filter.value, kind.value, sort.value]);
  const scroller = useRef<HTMLDivElement>(null);
  const field = useRef<HTMLInputElement>(null);
  const [view, setView] = useState({ top: 0, height: 900 });
  const latest = useRef(shown);
  latest.current = shown;

  useEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const measure = () => setView({ top: element.scrollTop, height: element.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener("scroll", measure, { passive: true });
    moves.value = {
      step: (by) => {
        const all = latest.current;
        const index = Math.min(Math.max(all.findIndex((row) => row.id === picked.value) + by, 0), all.length - 1);
        picked.value = all[index]?.id;
        const y = index * HEIGHT;
        if (y < element.scrollTop) element.scrollTop = y;
        else if (y + HEIGHT > element.scrollTop + element.clientHeight) element.scrollTop = y + HEIGHT - element.clientHeight;
      },
      open: () => {
        const row = latest.current.find((one) => one.id === picked.value);
        if (row) go({ place: "sandbox", name: row.name, tab: "overview" });
      },
      find: () => field.current?.focus(),
    };
    if (toFind.value) {
      toFind.value = false;
      field.current?.focus();
    }
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", measure);
      moves.value = undefined;
    };
  }, []);

  const first = Math.max(0, Math.floor(view.top / HEIGHT) - MORE);
  const last = Math.min(shown.length, Math.ceil((view.top + view.height) / HEIGHT) + MORE);
  const awake = rows.value.filter((row) => row.state !== "suspended").length;
  const memory = rows.value.reduce((sum, row) => sum + row.memory, 0);
  const disk = rows.value.reduce((sum, row) => sum + row.disk, 0);

  return (
    <section class="sandboxes" aria-labelledby="sandboxes-title">
      <div class="head">
        <h1 id="sandboxes-title">Sandboxes</h1>
        <dl class="sums">
          <div><dt>awake</dt><dd>{awake}</dd></div>
          <div><dt>asleep</dt><dd>{rows.value.length - awake}</dd></div>
          <div><dt>memory</dt><dd>{bytes(memory)}</dd></div>
          <div><dt>disk</dt><dd>{bytes(disk)}</dd></div>
        </dl>
      </div>
      <div class="bar">
        <input ref={field} type="search" class="find" aria-label="Find a sandbox" placeholder="Find by name, template or label   /" value={filter.value} onInput={(event) => (filter.value = event.currentTarget.value)} onKeyDown={(event) => event.key === "Enter" && (moves.value?.step(shown.some((row) => row.id === picked.value) ? 0 : 1), moves.value?.open())} />
        <div class="choice" role="group" aria-label="Which">
          {(["all", "awake", "asleep"] as const).map((one) => <button key={one} type="button" aria-pressed={kind.value === one} onClick={() => (kind.value = one)}>{one}</button>)}
        </div>
        <label class="sort">
          <span class="hidden">Order</span>
          <select aria-label="Order" value={sort.value} onChange={(event) => (sort.value = event.currentTarget.value as Sort)}>
            {SORTS.map(([one, word]) => <option key={one} value={one}>by {word.toLowerCase()}</option>)}
          </select>
        </label>
      </div>
      <div class="rows" ref={scroller} tabIndex={0} role="region" aria-label="List of sandboxes">
        {loaded.value && rows.value.length === 0 ? (
          <Empty title="Nothing here yet">
            <p>A sandbox is a Linux computer that stays until you remove it, and sleeps while nothing happens.</p>
            <Button tone="main" onClick={() => (creating.value = {})}>Make the first one</Button>
          </Empty>
        ) : shown.length === 0 && loaded.value ? (
          <Empty title="None fits"><p>Nothing has “{filter.value}” in its name, template or labels{kind.value === "all" ? "" : ` and is ${kind.value}`}.</p></Empty>
        ) : (
          <ul style={{ height: `${shown.length * HEIGHT}px` }}>
            {shown.slice(first, last).map((row, index) => <Line key={row.id} row={row} y={(first + index) * HEIGHT} picked={row.id === picked.value} />)}
          </ul>
        )}
      </div>
    </section>
  );
}

function Line({ row, y, picked }: { row: Row; y: number; picked: boolean }): JSX.Element {
  void beat.value;
  const now = Date.now();
  return (
    <li class={picked ? "picked" : ""} style={{ transform: `translateY(${y}px)` }}>
      <a href={to({ place: "sandbox", name: row.name, tab: "overview" })}>
        <span class="name">
          <strong>{row.name}</strong>
          <small>{row.template}{row.parent ? " · fork" : ""}{row.engine === "native" ? "" : ` · ${row.engine}`}</small>
        </span>
        <span class="when"><StateMark state={row.state} level={row.level} /><small>{ago(row.since, now)}</small></span>
        <span class="act"><Sparkline values={activity(row.id).map((one) => one.cpu)} /><small>{row.state === "active" ? share(row.cpu) : ""}</small></span>
        <Amount label="memory" value={row.memory} most={row.memory_limit} />
        <Amount label="disk" value={row.disk} most={row.disk_limit} />
      </a>
    </li>
  );
}

function Amount({ label, value, most }: { label: string; value: number; most: number }): JSX.Element {
  return (
    <span class={`amount ${label}`}>
      <small>{label}</small>
      <span>{value === 0 ? "–" : bytes(value)}</span>
      <svg viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true"><rect class="all" width="100" height="4" rx="2" /><rect width={Math.min(100, (value / Math.max(most, 1)) * 100)} height="4" rx="2" /></svg>
    </span>
  );
}
