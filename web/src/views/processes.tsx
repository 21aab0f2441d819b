/** What runs, and execs: what was started from outside, with its output. */

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { at, follow, list, post } from "../api";
import { ago } from "../format";
import type { Exec, Row } from "../types";
import { Button, complain, Empty, Trouble, useLoaded } from "../ui";
import { Running } from "./running";
import { Asleep } from "./sandbox";

export function Processes({ row }: { row: Row }): JSX.Element {
  const [entered, setEntered] = useState(row.state === "active");
  if (!entered && row.state === "suspended") return <Asleep row={row} what="What runs inside is known to it alone." />;
  return <Execs row={row} entered={() => setEntered(true)} />;
}

function Execs({ row, entered }: { row: Row; entered: () => void }): JSX.Element {
  const execs = useLoaded(() => list<Exec>(at(row.id, "/execs")), [row.id]);
  const [picked, setPicked] = useState<string>();
  useEffect(entered, []);
  const run = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    try {
      const exec = await post<Exec>(at(row.id, "/execs"), { shell: String(new FormData(form).get("command")) });
      form.reset();
      setPicked(exec.id);
      await execs.again();
    } catch (error) {
      complain(error);
    }
  };
  const signal = async (exec: Exec, word: string) => {
    await post(at(row.id, `/execs/${exec.id}/signal`), { signal: word });
    await execs.again();
  };
  const now = Date.now();
  const shown = [...(execs.value ?? [])].reverse();
  const open = shown.find((one) => one.id === picked);
  return (
    <div class="processes">
      <form class="card line" onSubmit={(event) => void run(event)}>
        <label class="field grow"><span>Run a command</span><input name="command" placeholder="make test" autocomplete="off" required /></label>
        <button class="main">Run</button>
        <Button act={execs.again}>Refresh</Button>
      </form>
      <Running row={row} />
      <h2>Commands</h2>
      {execs.problem && <Trouble problem={execs.problem} again={() => void execs.again()} />}
      {execs.value?.length === 0 && <Empty title="Nothing was started from outside"><p>Commands, terminals and services appear here.</p></Empty>}
      <ul class="execs">
        {shown.map((exec) => (
          <li key={exec.id} class={`card ${exec.id === picked ? "picked" : ""}`}>
            <button class="entry" aria-expanded={exec.id === picked} onClick={() => setPicked(exec.id === picked ? undefined : exec.id)}>
              <span class={`tag ${exec.status.state === "running" ? "good" : exec.status.exit_code === 0 ? "" : "bad"}`}>{exec.status.state === "running" ? "runs" : exec.status.signal ? `signal ${exec.status.signal}` : `exit ${exec.status.exit_code}`}</span>
              <code>{exec.argv.join(" ")}</code>
              <small>{exec.pty ? "terminal, " : ""}{exec.user}, {ago(exec.started_at, now)}</small>
            </button>
            {exec.status.state === "running" && <span class="tools"><Button act={() => signal(exec, "TERM")}>End</Button><Button tone="danger" act={() => signal(exec, "KILL")}>Kill</Button></span>}
            {open?.id === exec.id && <Output key={exec.id} path={at(row.id, `/execs/${exec.id}/output`)} ended={() => void execs.again()} running={exec.status.state === "running"} />}
          </li>
        ))}
      </ul>
    </div>
  );
}

/** What a process writes, both streams, as it comes. */
function Output({ path, ended, running }: { path: string; ended: () => void; running: boolean }): JSX.Element {
  const [text, setText] = useState("");
  const [errors, setErrors] = useState("");
  useEffect(() => {
    const stop = new AbortController();
    const quiet = (error: unknown) => !stop.signal.aborted && complain(error);
    const wait = running ? "&follow=true" : "";
    const both = [
      follow(`${path}?stream=stdout${wait}`, stop.signal, (part) => setText((before) => cut(before + part))).catch(quiet),
      follow(`${path}?stream=stderr${wait}`, stop.signal, (part) => setErrors((before) => cut(before + part))).catch(quiet),
    ];
    if (running) void Promise.all(both).then(() => !stop.signal.aborted && ended());
    return () => stop.abort();
  }, [path]);
  return (
    <div class="output">
      <Log text={text} empty={errors ? "" : "Nothing was written."} label="Output" />
      {errors && <Log text={errors} empty="" label="Errors" />}
    </div>
  );
}

/** The end of what is long. */
export function cut(text: string): string {
  return text.length > 200_000 ? text.slice(-150_000) : text;
}

export function Log({ text, empty, label }: { text: string; empty: string; label: string }): JSX.Element {
  const element = useRef<HTMLPreElement>(null);
  useEffect(() => {
    const here = element.current;
    if (here) here.scrollTop = here.scrollHeight;
  }, [text]);
  // Colours and moves of a terminal mean nothing here.
  const plain = text.replace(/\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\r/g, "");
  return <pre ref={element} class="log" tabIndex={0} aria-label={label}>{plain || <em>{empty}</em>}</pre>;
}
