import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { at, get, post, put } from "../api";
import { beat } from "../board";
import type { PortView, Row, SandboxView } from "../types";
import { Button, Empty, tell, Trouble, useLoaded } from "../ui";

/** Ports that listen, with the way to them. Looking does not wake it. */
export function Ports({ row }: { row: Row }): JSX.Element {
  const view = useLoaded(() => get<SandboxView>(at(row.id)), [row.id, row.since, row.state, Math.floor(beat.value / 3)]);
  const [links, setLinks] = useState<Record<number, string>>({});
  const link = async (port: number) => {
    const made = await post<{ url?: string | null; path: string }>(at(row.id, `/ports/${port}/link`), { expires: "1h" });
    setLinks((before) => ({ ...before, [port]: made.url ?? made.path }));
  };
  const set = async (port: number, access: "public" | "private") => {
    await put<PortView>(at(row.id, `/ports/${port}`), { access });
    tell(access === "public" ? `Everybody gets in at port ${port}` : `Port ${port} takes a token or a link`);
    setLinks((before) => { const { [port]: _, ...rest } = before; return rest; });
    await view.again();
  };
  const ports = view.value?.ports ?? [];
  return (
    <div class="ports">
      {view.problem && <Trouble problem={view.problem} again={() => void view.again()} />}
      {view.value && ports.length === 0 && (
        <Empty title={row.state === "suspended" ? "It sleeps" : "Nothing listens"}>
          <p>{row.state === "suspended" ? "A request to one of its ports wakes it." : "Start a server inside: it is reached from here without any setting."}</p>
        </Empty>
      )}
      <div class="cards">
        {ports.map((one) => (
          <article key={one.port} class="card port">
            <h2>{one.port} <span class={`tag ${one.access === "public" ? "warn" : ""}`}>{one.access ?? "private"}</span></h2>
            <p>{one.process ?? "nothing listens now"}</p>
            {one.url && <p class="hint"><code>{one.url}</code></p>}
            {links[one.port] !== undefined && <p><a href={links[one.port] ?? ""} target="_blank" rel="noreferrer">Open it in a new tab</a> <small>good for an hour</small></p>}
            <footer>
              {one.access === "public" ? <Button act={() => set(one.port, "private")}>Make private</Button> : <Button act={() => set(one.port, "public")}>Make public</Button>}
              {one.access === "public" && one.url ? <a class="button main" href={one.url} target="_blank" rel="noreferrer">Open</a> : <Button tone="main" act={() => link(one.port)}>Make a link</Button>}
            </footer>
          </article>
        ))}
      </div>
    </div>
  );
}
