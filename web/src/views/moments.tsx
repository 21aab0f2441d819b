/** Checkpoints and forks as a tree: every node can be chosen, and says what can be done from there. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { at, get, list, post, remove, request } from "../api";
import { rows } from "../board";
import { ago, bytes, shortId } from "../format";
import { go, to } from "../route";
import { flat, moments, title, type Node } from "../tree";
import type { Checkpoint, Diff, Event, Receipt, Row } from "../types";
import { ask, Button, confirm, Empty, problemOf, stateText, tell, Trouble, useLoaded } from "../ui";
import { told } from "./sandbox";

const LINE = 54;
const STEP = 28;

interface Loaded {
  checkpoints: Checkpoint[];
  head?: string | undefined;
}

async function load(row: Row): Promise<Loaded> {
  const [checkpoints, events] = await Promise.all([
    list<Checkpoint>(at(row.id, "/checkpoints")),
    get<{ items: Event[] }>(`/v1/events?follow=false&sandbox=${encodeURIComponent(row.id)}`),
  ]);
  const last = events.items.filter((event) => event.receipt?.checkpoint && ["checkpointed", "restored"].includes(event.kind)).at(-1);
  return { checkpoints, head: last?.receipt?.checkpoint ?? undefined };
}

export function Moments({ row }: { row: Row }): JSX.Element {
  const forks = rows.value.filter((one) => one.parent?.sandbox === row.id);
  const loaded = useLoaded(() => load(row), [row.id, row.since, forks.length]);
  const [picked, setPicked] = useState<string>("now");
  const [diff, setDiff] = useState<{ title: string; diff: Diff }>();
  const keep = async () => {
    const comment = await ask("Keep this moment", "What it is (may be left empty)", "Keep");
    if (comment === undefined) return;
    const made = await checkpoint(row, comment);
    if (!made) return;
    tell("This moment is kept", told(made.receipt));
    await loaded.again();
    setPicked(made.checkpoint.id);
  };
  const tree = moments(row, loaded.value?.checkpoints ?? [], forks, loaded.value?.head);
  const nodes = flat(tree);
  const chosen = nodes.find((one) => one.key === picked) ?? nodes.find((one) => one.kind === "now");
  return (
    <div class="moments">
      {loaded.problem && <Trouble problem={loaded.problem} again={() => void loaded.again()} />}
      <div class="columns">
        <article class="card">
          <div class="bar"><h2>Moments and forks</h2><Button tone="main" act={keep}>Keep this moment</Button></div>
          {loaded.value?.checkpoints.length === 0 && <p class="hint">A checkpoint keeps files, memory and processes as they are, to go back to or to fork.</p>}
          <Tree nodes={nodes} picked={chosen?.key} pick={(one) => { setPicked(one.key); setDiff(undefined); }} />
        </article>
        {chosen && <Chosen key={chosen.key} row={row} chosen={chosen} checkpoints={loaded.value?.checkpoints ?? []} again={loaded.again} show={setDiff} />}
      </div>
      {diff && <DiffView {...diff} />}
    </div>
  );
}

/** Keeps a moment; if its memory cannot be saved, of its files alone, if one agrees. */
async function checkpoint(row: Row, comment: string): Promise<{ checkpoint: Checkpoint; receipt: Receipt } | undefined> {
  const wanted = comment ? { comment } : {};
  try {
    return await post(at(row.id, "/checkpoints"), wanted);
  } catch (error) {
    const problem = problemOf(error);
    if (problem.code !== "memory_not_saved" || !(await confirm("Keep its files alone?", problem.message, "Keep files"))) throw error;
    return post(at(row.id, "/checkpoints"), { ...wanted, files_only: true });
  }
}

function Tree({ nodes, picked, pick }: { nodes: readonly Node[]; picked: string | undefined; pick: (node: Node) => void }): JSX.Element {
  const x = (one: Node) => 14 + one.depth * STEP;
  const y = (one: Node) => one.line * LINE + LINE / 2;
  const depth = Math.max(...nodes.map((one) => one.depth));
  const width = 28 + depth * STEP;
  return (
    <div class="tree" style={{ height: `${nodes.length * LINE}px` }}>
      <svg width={width} height={nodes.length * LINE} aria-hidden="true">
        {nodes.map((one) => one.parent && (
          <path key={one.key} class={one.kind} d={one.parent.depth === one.depth
            ? `M${x(one)} ${y(one.parent)}V${y(one)}`
            : `M${x(one.parent)} ${y(one.parent)}V${y(one) - 14}Q${x(one.parent)} ${y(one)} ${x(one.parent) + 14} ${y(one)}H${x(one)}`} />
        ))}
        {nodes.map((one) => <circle key={one.key} class={`${one.kind} ${one.key === picked ? "picked" : ""}`} cx={x(one)} cy={y(one)} r={one.kind === "now" ? 7 : 5.5} />)}
      </svg>
      <ul>
        {nodes.map((one) => (
          <li key={one.key} style={{ top: `${one.line * LINE}px`, left: `${x(one) + 12}px` }}>
            <button class={`node ${one.kind}`} aria-pressed={one.key === picked} onClick={() => pick(one)}>
              <strong>{one.title}</strong>
              <small>{noteOf(one)}</small>
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}

function noteOf(one: Node): string {
  switch (one.kind) {
    case "origin": return "where it began";
    case "now": return `now, ${one.sandbox ? stateText(one.sandbox.state, one.sandbox.level) : ""}`;
    case "fork": return `fork, ${one.sandbox ? stateText(one.sandbox.state, one.sandbox.level) : ""}`;
    case "checkpoint": return `${one.checkpoint ? ago(one.checkpoint.created_at, Date.now()) : ""} · …${shortId(one.key)}${one.checkpoint?.memory ? " · with memory" : " · files"}`;
  }
}

interface ChosenProps {
  row: Row;
  chosen: Node;
  checkpoints: readonly Checkpoint[];
  again: () => Promise<void>;
  show: (shown: { title: string; diff: Diff }) => void;
}

function Chosen({ row, chosen, checkpoints, again, show }: ChosenProps): JSX.Element {
  const checkpoint = chosen.checkpoint;
  const fork = async (from?: string) => {
    const name = await ask("Fork", "Name of the new sandbox (made up if left empty)", "Fork");
    if (name === undefined) return;
    const made = await post<{ sandbox?: Row; receipt?: Receipt; error?: { message: string } }[]>(at(row.id, "/fork"), { ...(from ? { from } : {}), ...(name ? { names: [name] } : {}) });
    const one = made[0];
    if (one?.error) throw new Error(one.error.message);
    tell(`${one?.sandbox?.name ?? "The fork"} is there`, one?.receipt ? told(one.receipt) : undefined);
    await again();
  };
  if (!checkpoint) {
    const other = chosen.kind === "fork" && chosen.sandbox;
    return (
      <article class="card chosen">
        <h2>{chosen.title}</h2>
        <p class="hint">{chosen.kind === "origin" ? `It started from ${row.parent ? "another sandbox" : `template ${row.template}`}.` : other ? "A computer of its own since it was forked." : "Where it stands now."}</p>
        <footer>
          {other ? <a class="button main" href={to({ place: "sandbox", name: other.name, tab: "overview" })}>Go there</a> : chosen.kind === "now" && <Button tone="main" act={() => fork()}>Fork it</Button>}
          {chosen.kind === "origin" && row.parent && <Parent id={row.parent.sandbox} />}
        </footer>
      </article>
    );
  }
  const restore = async () => {
    if (!(await confirm(`Take ${row.name} back?`, "Its files, memory and processes become what they were then. Where it stands now is kept as a moment of its own.", "Restore"))) return;
    tell(`${row.name} is back there`, told(await post<Receipt>(at(row.id, "/restore"), { checkpoint: checkpoint.id })));
    await again();
  };
  const compare = async (other: Checkpoint) => show({
    title: `From ${nameOf(checkpoint)} to ${nameOf(other)}`,
    diff: await get<Diff>(at(row.id, `/checkpoints/${checkpoint.id}/diff/${other.id}`)),
  });
  const promote = async () => {
    const name = await ask("Make a template of it", "Name of the template", "Promote");
    if (!name) return;
    await promoted(name, checkpoint.id);
    tell(`Template ${name} is there`, "New sandboxes start from this moment, memory and all.");
  };
  const drop = async () => {
    if (!(await confirm("Delete this moment?", "There is no way back to it any more.", "Delete"))) return;
    await remove(at(row.id, `/checkpoints/${checkpoint.id}`));
    await again();
  };
  const others = checkpoints.filter((one) => one.id !== checkpoint.id);
  return (
    <article class="card chosen">
      <h2>{nameOf(checkpoint)}</h2>
      <dl class="facts">
        <div><dt>Kept</dt><dd>{ago(checkpoint.created_at, Date.now())}</dd></div>
        <div><dt>Memory</dt><dd>{checkpoint.memory ? bytes(checkpoint.bytes.memory) : "not kept"}</dd></div>
        <div><dt>Disk</dt><dd>{bytes(checkpoint.bytes.disk_exclusive)} of its own, {bytes(checkpoint.bytes.disk_referenced)} in all</dd></div>
        {checkpoint.processes.length > 0 && <div><dt>Processes</dt><dd>{checkpoint.processes.map((one) => one.name).join(", ")}</dd></div>}
        <div><dt>Id</dt><dd><code>{checkpoint.id}</code></dd></div>
      </dl>
      <footer>
        <Button tone="main" act={restore}>Restore</Button>
        <Button act={() => fork(checkpoint.id)}>Fork</Button>
        <Button act={promote}>Promote</Button>
        <Button tone="danger" act={drop}>Delete</Button>
      </footer>
      {others.length > 0 && (
        <label class="field">
          <span>Compare with</span>
          <select value="" onChange={(event) => { const other = others.find((one) => one.id === event.currentTarget.value); if (other) void compare(other); }}>
            <option value="">choose a moment</option>
            {others.map((one) => <option key={one.id} value={one.id}>{nameOf(one)}, {ago(one.created_at, Date.now())}</option>)}
          </select>
        </label>
      )}
    </article>
  );
}

function nameOf(checkpoint: Checkpoint): string {
  return checkpoint.comment && !checkpoint.automatic ? checkpoint.comment : `${title(checkpoint)} …${shortId(checkpoint.id)}`;
}

/** Making a template answers line by line; the last line says how it ended. */
async function promoted(name: string, checkpoint: string): Promise<void> {
  const response = await request("POST", "/v1/templates", JSON.stringify({ name, promote: checkpoint }), "application/json");
  const lines = (await response.text()).trim().split("\n").map((line) => JSON.parse(line) as { type: string; error?: { message: string } });
  const failed = lines.find((line) => line.type === "error");
  if (failed) throw new Error(failed.error?.message ?? "it failed");
}

function Parent({ id }: { id: string }): JSX.Element | null {
  const parent = rows.value.find((one) => one.id === id);
  return parent ? <Button onClick={() => go({ place: "sandbox", name: parent.name, tab: "moments" })}>Go to {parent.name}</Button> : null;
}

function DiffView({ title, diff }: { title: string; diff: Diff }): JSX.Element {
  const nothing = diff.files.length + diff.processes_started.length + diff.processes_ended.length === 0;
  return (
    <article class="card">
      <h2>{title}</h2>
      {nothing && <Empty title="Nothing changed" />}
      <ul class="diff">
        {diff.processes_ended.map((one) => <li key={`e${one.pid}`} class="removed"><span>ended</span><code>{one.name}</code><small>pid {one.pid}</small></li>)}
        {diff.processes_started.map((one) => <li key={`s${one.pid}`} class="added"><span>started</span><code>{one.name}</code><small>pid {one.pid}</small></li>)}
        {diff.files.map((one) => <li key={one.path} class={one.kind}><span>{one.kind}</span><code>{one.path}</code><small>{one.kind === "removed" ? "" : bytes(one.size)}</small></li>)}
      </ul>
      {diff.truncated && <p class="hint">More paths differ; the first {diff.files.length} are shown.</p>}
    </article>
  );
}
