/** Small drawings: a line of activity, a plot over time, a bar of sleep and wake. */

import type { JSX } from "preact";
import { span } from "./format";
import type { LedgerEntry, State } from "./types";

export function points(values: readonly number[], width: number, height: number, most: number, room: number): string {
  const step = width / Math.max(1, room - 1);
  const from = width - (values.length - 1) * step;
  return values
    .map((value, index) => `${(from + index * step).toFixed(1)},${(height - (Math.min(value, most) / Math.max(most, 1)) * (height - 2) - 1).toFixed(1)}`)
    .join(" ");
}

export function Sparkline({ values, room = 60 }: { values: readonly number[]; room?: number }): JSX.Element {
  const shown = values.slice(-room);
  const most = Math.max(50, ...shown);
  return (
    <svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true">
      {shown.length > 1 ? <polyline points={points(shown, 100, 24, most, room)} /> : <line x1="0" x2="100" y1="23" y2="23" />}
    </svg>
  );
}

interface PlotProps {
  title: string;
  values: readonly number[];
  room: number;
  /** How long each value stands for, in milliseconds. */
  each: number;
  /** The least that the whole height stands for, so that noise looks like noise. */
  least: number;
  /** The most that it may stand for. */
  most?: number | undefined;
  /** As much as there may be. */
  limit?: string | undefined;
  show: (value: number) => string;
  tone: string;
}

export function Plot({ title, values, room, each, least, most, limit, show, tone }: PlotProps): JSX.Element {
  const last = values.at(-1) ?? 0;
  const peak = Math.max(0, ...values);
  const top = Math.min(most ?? Infinity, Math.max(least, peak * 1.25));
  // A single value is a line as long as its step.
  const drawn = values.length === 1 ? [last, last] : values;
  const line = points(drawn, 300, 72, top, room);
  const first = line.split(",")[0] ?? "0";
  return (
    <figure class={`plot ${tone}`}>
      <figcaption>
        <span>{title}</span>
        <strong>{show(last)}</strong>
      </figcaption>
      <svg viewBox="0 0 300 72" preserveAspectRatio="none" role="img" aria-label={`${title} over the last ${span(room * each)}: now ${show(last)}, at most ${show(peak)}`}>
        {[18, 36, 54].map((y) => <line key={y} class="grid" x1="0" x2="300" y1={y} y2={y} />)}
        {drawn.length > 1 && (
          <>
            <polygon points={`${first},72 ${line} 300,72`} />
            <polyline points={line} />
          </>
        )}
      </svg>
      <small>at most {show(peak)} in {span(Math.max(values.length, 1) * each)}{limit && ` · limit ${limit}`}</small>
    </figure>
  );
}

export interface Stretch {
  awake: boolean;
  level?: string | undefined;
  cause?: string | undefined;
  from: number;
  to: number;
}

/** The stretches of sleep and wake that a ledger tells of, up to now. */
export function stretches(ledger: readonly LedgerEntry[], now: number, state: State): Stretch[] {
  const sorted = [...ledger].sort((a, b) => a.at.localeCompare(b.at));
  return sorted.map((entry, index) => {
    const next = sorted[index + 1];
    const awake = entry.kind !== "slept" && !(entry.kind === "crashed" && !next && state === "suspended");
    return {
      awake, from: Date.parse(entry.at), to: next ? Date.parse(next.at) : now,
      level: entry.level ?? undefined, cause: entry.cause ?? undefined,
    };
  });
}

export function SleepBar({ ledger, now, state }: { ledger: readonly LedgerEntry[]; now: number; state: State }): JSX.Element | null {
  const parts = stretches(ledger, now, state);
  const first = parts[0];
  if (!first) return null;
  const whole = Math.max(1, now - first.from);
  const awake = parts.filter((one) => one.awake).reduce((sum, one) => sum + one.to - one.from, 0);
  return (
    <figure class="sleepbar">
      <svg viewBox="0 0 1000 20" preserveAspectRatio="none" role="img" aria-label={`Awake ${Math.round((awake / whole) * 100)} % of the last ${span(whole)}`}>
        {parts.map((one, index) => {
          const x = ((one.from - first.from) / whole) * 1000;
          return (
            <rect key={index} class={one.awake ? "awake" : `asleep ${one.level ?? ""}`} x={x} width={Math.max(2, ((one.to - one.from) / whole) * 1000)} y="0" height="20">
              <title>{`${one.awake ? "awake" : "asleep"} for ${span(one.to - one.from)}`}</title>
            </rect>
          );
        })}
      </svg>
      <figcaption>
        <span>{span(whole)} ago</span>
        <span>awake {Math.round((awake / whole) * 100)} %</span>
        <span>now</span>
      </figcaption>
    </figure>
  );
}
