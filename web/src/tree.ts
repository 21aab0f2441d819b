/** Checkpoints and forks as a tree, laid out: no drawing here. */

import type { Checkpoint, Row } from "./types";

export interface Node {
  key: string;
  kind: "origin" | "checkpoint" | "now" | "fork";
  title: string;
  note: string;
  checkpoint?: Checkpoint;
  sandbox?: Row;
  depth: number;
  /** The line it stands on; every node has one of its own. */
  line: number;
  parent?: Node;
  children: Node[];
}

/**
 * The moments of one sandbox in the order they came from each other, where it stands now, and what was forked from it.
 *
 * `head` is the moment that it stands on, if one is known. A moment whose parent is gone starts at the origin; a fork whose
 * moment is gone hangs there too.
 */
export function moments(sandbox: Row, checkpoints: readonly Checkpoint[], forks: readonly Row[], head?: string): Node {
  const origin = node("origin", `from:${sandbox.template}`, sandbox.parent ? "forked" : sandbox.template, "where it began");
  const byId = new Map<string, Node>();
  const sorted = [...checkpoints].sort((a, b) => a.created_at.localeCompare(b.created_at) || a.id.localeCompare(b.id));
  for (const checkpoint of sorted) {
    const made = node("checkpoint", checkpoint.id, title(checkpoint), checkpoint.id);
    made.checkpoint = checkpoint;
    byId.set(checkpoint.id, made);
  }
  for (const checkpoint of sorted) {
    const made = byId.get(checkpoint.id);
    const parent = checkpoint.parent ? byId.get(checkpoint.parent) : undefined;
    if (made) adopt(parent ?? origin, made);
  }
  for (const fork of forks) {
    const made = node("fork", fork.id, fork.name, "fork");
    made.sandbox = fork;
    adopt((fork.parent?.checkpoint && byId.get(fork.parent.checkpoint)) || origin, made);
  }
  const now = node("now", "now", sandbox.name, "now");
  now.sandbox = sandbox;
  adopt((head && byId.get(head)) || byId.get(sorted.at(-1)?.id ?? "") || origin, now);
  place(origin);
  return origin;
}

/** Every node, from top to bottom. */
export function flat(origin: Node): Node[] {
  const all = [origin];
  for (const child of origin.children) all.push(...flat(child));
  return all;
}

/** What a moment is called; one that was kept by itself before a restore names that in full, which is too long here. */
export function title(checkpoint: Checkpoint): string {
  return checkpoint.automatic ? "before going back" : checkpoint.comment || "checkpoint";
}

function node(kind: Node["kind"], key: string, title: string, note: string): Node {
  return { kind, key, title, note, depth: 0, line: 0, children: [] };
}

function adopt(parent: Node, child: Node): void {
  child.parent = parent;
  parent.children.push(child);
}

/** The first line of descent goes straight down, branches to the right. */
function place(origin: Node): void {
  let line = 0;
  const visit = (one: Node, depth: number): void => {
    one.depth = depth;
    one.line = line++;
    // Branches first and the longest line last, so that no branch crosses it.
    const order = [...one.children].sort((a, b) => height(a) - height(b) || Number(a.kind === "now") - Number(b.kind === "now"));
    one.children = order;
    order.forEach((child, index) => visit(child, index === order.length - 1 ? depth : depth + 1));
  };
  visit(origin, 0);
}

function height(one: Node): number {
  return 1 + Math.max(0, ...one.children.map(height));
}
