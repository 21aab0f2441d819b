/** What runs in a sandbox, from one look to the next: no drawing and no asking here. */

import type { Process } from "./types";

export interface Look {
  /** When it was, in milliseconds of a clock that nobody sets. */
  at: number;
  processes: readonly Process[];
  /** Thousandths of one processor since the look before, by pid; none of those that are new. */
  shares: ReadonlyMap<number, number>;
}

/** One more look: what each process has used since the one before. */
export function look(before: Look | undefined, processes: readonly Process[], at: number): Look {
  const known = new Map((before?.processes ?? []).map((one) => [one.pid, one]));
  const micros = Math.max(1, at - (before?.at ?? at)) * 1000;
  const shares = new Map<number, number>();
  for (const one of processes) {
    const earlier = known.get(one.pid);
    // A number that was given anew says nothing of who had it before.
    if (earlier && one.cpu_us >= earlier.cpu_us && earlier.argv.join("\0") === one.argv.join("\0")) {
      shares.set(one.pid, Math.round(((one.cpu_us - earlier.cpu_us) * 1000) / micros));
    }
  }
  return { at, processes, shares };
}

/**
 * How long to wait before the next look, in milliseconds.
 *
 * The longer the list, the seldomer: to tell of one process costs the sandbox a few hundred bytes of traffic and some tens of
 * microseconds, with gVisor more, and it must not stay awake for being looked at.
 */
export function pause(count: number, engine: string): number {
  return engine === "native" ? Math.max(3000, count * 150) : Math.max(15_000, count * 1000);
}

export interface Branch {
  process: Process;
  depth: number;
}

/** Parents before their children, each below its own. */
export function family(processes: readonly Process[]): Branch[] {
  const here = new Set(processes.map((one) => one.pid));
  const children = new Map<number, Process[]>();
  const roots: Process[] = [];
  for (const one of processes) {
    if (one.ppid !== one.pid && here.has(one.ppid)) children.set(one.ppid, [...(children.get(one.ppid) ?? []), one]);
    else roots.push(one);
  }
  const sorted: Branch[] = [];
  const waiting = roots.map((process) => ({ process, depth: 0 })).reverse();
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    const { process, depth } = next;
    sorted.push(next);
    waiting.push(...(children.get(process.pid) ?? []).map((child) => ({ process: child, depth: depth + 1 })).reverse());
  }
  return sorted;
}
