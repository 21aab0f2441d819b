/** What a sandbox used over hours and days, as rows of numbers that can be plotted. */

import type { UsageHistory } from "./types";

export interface Series {
  /** Thousandths of one processor. */
  cpu: number[];
  memory: number[];
  /** Thousandths of the time. */
  awake: number[];
  /** How long each number stands for, in milliseconds. */
  each: number;
  /** How many numbers the whole time has; the first ones are missing if the daemon was not there. */
  room: number;
}

/** `1m`, `15m`, `2h`: what the daemon writes for a whole number of one unit. */
export function milliseconds(span: string): number {
  const found = /^(\d+)([smhd])$/.exec(span);
  const unit = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }[found?.[2] ?? ""] ?? 0;
  return Number(found?.[1] ?? 0) * unit;
}

/** One number for each step from the first that is known to the present one; in a step that nobody saw nothing ran. */
export function series(history: UsageHistory, over: number, now: number): Series {
  const each = milliseconds(history.step) || 60_000;
  const found: Series = { cpu: [], memory: [], awake: [], each, room: Math.max(2, Math.ceil(over / each)) };
  const steps = new Map(history.steps.map((step) => [Math.floor(Date.parse(step.at) / each), step]));
  const last = Math.floor(now / each);
  const first = Math.max(last - found.room + 1, Math.min(last, ...steps.keys()));
  for (let number = first; number <= last; number++) {
    const step = steps.get(number);
    const part = (ms: number) => (step && step.seen_ms > 0 ? (ms * 1000) / step.seen_ms : 0);
    // A step that has only just begun says nothing yet.
    if (!step && number === last && number > first) break;
    found.cpu.push(Math.round(part(step?.cpu_ms ?? 0)));
    found.memory.push(step?.memory ?? 0);
    found.awake.push(Math.round(part(step?.awake_ms ?? 0)));
  }
  return found;
}
