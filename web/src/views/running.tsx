/** Everything that runs in a sandbox, whoever started it. It is asked for only while it is to be seen. */

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { at, get, post } from "../api";
import { ago, bytes, share, span } from "../format";
import { family, look, type Look, pause } from "../running";
import type { Problem, Process, ProcessList, Row } from "../types";
import { Button, Empty, problemOf, Trouble } from "../ui";

/** More are nobody's reading. */
const MOST_SHOWN = 300;
/** A share needs two looks; the second comes soon. */
const SECOND_LOOK = 1000;

export function Running({ row }: { row: Row }): JSX.Element {
  const { seen, problem, again } = useLooks(row);
  if (row.state !== "active") {
    return <article class="card"><Empty title={`${row.name} is ${row.state === "suspended" ? "asleep" : "not awake"}`}><p>Its processes rest with it, and are shown when it is awake.</p></Empty></article>;
  }
  const end = async (process: Process, signal: string) => {
    await post(at(row.id, `/processes/${process.pid}/signal`), { signal });
    again();
  };
  const branches = family(seen?.processes ?? []);
  return (
    <section class="running" aria-labelledby="running-title">
      <h2 id="running-title">Processes{seen && <span class="tag">{seen.processes.length}</span>}</h2>
      {problem && <Trouble problem={problem} again={again} />}
      {seen && (
        <div class="scroll" tabIndex={0} role="region" aria-labelledby="running-title">
          <table>
            <thead><tr><th scope="col">Pid</th><th scope="col">Command</th><th scope="col" class="wide">User</th><th scope="col">CPU</th><th scope="col">Memory</th><th scope="col" class="wide">Started</th><td /></tr></thead>
            <tbody>{branches.slice(0, MOST_SHOWN).map(({ process, depth }) => <Line key={process.pid} process={process} depth={depth} used={seen.shares.get(process.pid)} end={end} />)}</tbody>
          </table>
          {branches.length > MOST_SHOWN && <p class="hint">and {branches.length - MOST_SHOWN} more</p>}
        </div>
      )}
    </section>
  );
}

interface LineProps {
  process: Process;
  depth: number;
  used: number | undefined;
  end: (process: Process, signal: string) => Promise<void>;
}

function Line({ process, depth, used, end }: LineProps): JSX.Element {
  const { pid, state } = process;
  return (
    <tr>
      <th scope="row">{pid}</th>
      <td class="command">
        {depth > 0 && <span aria-hidden="true">{"\u00a0\u00a0".repeat(depth - 1)}└ </span>}
        <code title={process.argv.join(" ")}>{process.argv.join(" ") || `[${process.name}]`}</code>
        {process.service && <span class="tag">service {process.service}</span>}
        {state !== "running" && state !== "sleeping" && <span class="tag bad">{state}</span>}
      </td>
      <td class="wide">{process.user}</td>
      <td title={`${span(process.cpu_us / 1000)} in all, ${process.threads} ${process.threads === 1 ? "thread" : "threads"}`}>{used === undefined ? "–" : share(used)}</td>
      <td>{bytes(process.rss)}</td>
      <td class="wide">{ago(process.started_at, Date.now())}</td>
      <td class="ends">
        {/* The first is the sandbox itself. */}
        {pid !== 1 && state !== "zombie" && (
          <>
            <Button act={() => end(process, "TERM")} aria-label={`End process ${pid}`}>End</Button>
            <Button tone="danger" class="danger wide" act={() => end(process, "KILL")} aria-label={`Kill process ${pid}`}>Kill</Button>
          </>
        )}
      </td>
    </tr>
  );
}

/** Looks again and again while the sandbox is awake and the page is to be seen. */
function useLooks(row: Row): { seen: Look | undefined; problem: Problem | undefined; again: () => void } {
  const [seen, setSeen] = useState<Look>();
  const [problem, setProblem] = useState<Problem>();
  const again = useRef(() => {});
  useEffect(() => {
    if (row.state !== "active") return;
    let [over, timer, before] = [false, 0, undefined as Look | undefined];
    const once = async () => {
      clearTimeout(timer);
      let wait = SECOND_LOOK;
      try {
        if (!document.hidden) {
          const list = await get<ProcessList>(at(row.id, "/processes"));
          if (over) return;
          // One that has just fallen asleep is told of in another way, and what was seen last stays until then.
          if (list.state === "active") {
            wait = before ? pause(list.items.length, row.engine) : SECOND_LOOK;
            before = look(before, list.items, performance.now());
            setSeen(before);
          }
          setProblem(undefined);
        }
      } catch (error) {
        // Whoever wants to try again says so.
        if (!over) setProblem(problemOf(error));
        return;
      }
      clearTimeout(timer);
      timer = setTimeout(() => void once(), wait);
    };
    again.current = () => void once();
    void once();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [row.id, row.state]);
  return { seen, problem, again: () => again.current() };
}
