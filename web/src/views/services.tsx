import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { at, follow, list, post, put, remove } from "../api";
import { beat } from "../board";
import { ago } from "../format";
import type { Row, Service } from "../types";
import { Button, complain, confirm, Empty, tell, Trouble, useLoaded } from "../ui";
import { cut, Log } from "./processes";

const TONES: Record<Service["state"], string> = { running: "good", starting: "warn", backoff: "warn", stopped: "", failed: "bad", suspended: "" };

/** Processes that the sandbox keeps up. */
export function Services({ row }: { row: Row }): JSX.Element {
  const services = useLoaded(() => list<Service>(at(row.id, "/services")), [row.id, row.since, row.state, Math.floor(beat.value / 3)]);
  const [open, setOpen] = useState<string>();
  const put_ = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const data = new FormData(form);
    const port = Number(data.get("port"));
    try {
      await put(at(row.id, `/services/${encodeURIComponent(String(data.get("name")))}`), { shell: String(data.get("command")), ...(port ? { port } : {}) });
      form.reset();
      await services.again();
    } catch (error) {
      complain(error);
    }
  };
  const act = async (one: Service, verb: "start" | "stop" | "restart") => {
    await post(at(row.id, `/services/${encodeURIComponent(one.name)}/${verb}`));
    await services.again();
  };
  const drop = async (one: Service) => {
    if (!(await confirm(`Remove service ${one.name}?`, "It is stopped, and its log is lost.", "Remove"))) return;
    await remove(at(row.id, `/services/${encodeURIComponent(one.name)}`));
    tell(`Service ${one.name} is gone`);
    await services.again();
  };
  const now = Date.now();
  return (
    <div class="services">
      <form class="card line" onSubmit={(event) => void put_(event)}>
        <label class="field"><span>Service</span><input name="name" placeholder="web" required autocomplete="off" /></label>
        <label class="field grow"><span>Command</span><input name="command" placeholder="python3 -m http.server 3000" required autocomplete="off" /></label>
        <label class="field small"><span>Port</span><input name="port" inputmode="numeric" placeholder="none" /></label>
        <button class="main">Add</button>
      </form>
      {services.problem && <Trouble problem={services.problem} again={() => void services.again()} />}
      {services.value?.length === 0 && <Empty title="No services"><p>A service is a named process that the sandbox keeps up, also after it woke from its files.</p></Empty>}
      <ul class="execs">
        {services.value?.map((one) => (
          <li key={one.name} class="card">
            <button class="entry" aria-expanded={open === one.name} onClick={() => setOpen(open === one.name ? undefined : one.name)}>
              <span class={`tag ${TONES[one.state]}`}>{one.state}</span>
              <strong>{one.name}</strong>
              <code>{one.spec.shell ?? one.spec.argv?.join(" ")}</code>
              <small>{one.reason ?? (one.since ? ago(one.since, now) : "")}{one.restarts ? `, restarted ${one.restarts} times` : ""}</small>
            </button>
            <span class="tools">
              {one.state === "stopped" || one.state === "failed" ? <Button act={() => act(one, "start")}>Start</Button> : <Button act={() => act(one, "stop")}>Stop</Button>}
              <Button act={() => act(one, "restart")}>Restart</Button>
              <Button tone="danger" act={() => drop(one)}>Remove</Button>
            </span>
            {open === one.name && <ServiceLog key={one.name} path={at(row.id, `/services/${encodeURIComponent(one.name)}/logs`)} />}
          </li>
        ))}
      </ul>
    </div>
  );
}

function ServiceLog({ path }: { path: string }): JSX.Element {
  const [text, setText] = useState("");
  useEffect(() => {
    const stop = new AbortController();
    follow(`${path}?follow=true`, stop.signal, (part) => setText((before) => cut(before + part))).catch((error: unknown) => !stop.signal.aborted && complain(error));
    return () => stop.abort();
  }, [path]);
  return <div class="output"><Log text={text} empty="Nothing was written yet." label="Log" /></div>;
}
