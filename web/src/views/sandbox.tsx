/** One sandbox: its head, what one can do with it, and its parts. */

import type { JSX } from "preact";
import { at, post, remove } from "../api";
import { beat, byName, loaded } from "../board";
import { ago, span } from "../format";
import { go, TABS, to, type Tab } from "../route";
import type { Receipt, Row } from "../types";
import { Button, confirm, Empty, StateMark, tell } from "../ui";
import { Files } from "./files";
import { Moments } from "./moments";
import { Facts } from "./facts";
import { Ports } from "./ports";
import { Processes } from "./processes";
import { Services } from "./services";
import { TerminalView } from "./terminal";
import { Timeline } from "./timeline";
import { Usage } from "./usage";

const WORDS: Record<Tab, string> = {
  overview: "Overview", terminal: "Terminal", files: "Files", processes: "Processes", ports: "Ports", moments: "Moments", timeline: "Timeline", services: "Services",
};

export function Sandbox({ name, tab }: { name: string; tab: Tab }): JSX.Element {
  const row = byName.value.get(name);
  if (!row) {
    return loaded.value ? (
      <section class="page"><Empty title={`There is no sandbox ${name}`}><p>It may have been removed.</p><a class="button" href="#/">All sandboxes</a></Empty></section>
    ) : <section class="page" />;
  }
  return (
    <section class="sandbox" aria-labelledby="sandbox-title">
      <div class="head">
        <div>
          <p class="crumb"><a href="#/">Sandboxes</a></p>
          <h1 id="sandbox-title">{row.name}</h1>
          <p class="sub">
            <StateMark state={row.state} level={row.level} />
            <Since row={row} />
            {row.reason && <span class="reason">{row.reason}</span>}
          </p>
        </div>
        <Actions row={row} />
      </div>
      <nav class="tabs" aria-label={`Parts of ${row.name}`}>
        {TABS.map((one) => <a key={one} href={to({ place: "sandbox", name, tab: one })} aria-current={one === tab ? "page" : undefined}>{WORDS[one]}</a>)}
      </nav>
      <div class="body">{part(row, tab)}</div>
    </section>
  );
}

function Since({ row }: { row: Row }): JSX.Element {
  void beat.value;
  return <span>{ago(row.since, Date.now())}</span>;
}

function part(row: Row, tab: Tab): JSX.Element {
  switch (tab) {
    case "overview": return <Overview row={row} />;
    case "terminal": return <TerminalView row={row} />;
    case "files": return <Files row={row} />;
    case "processes": return <Processes row={row} />;
    case "ports": return <Ports row={row} />;
    case "moments": return <Moments row={row} />;
    case "timeline": return <Timeline row={row} />;
    case "services": return <Services row={row} />;
  }
}

/** What an operation did, in a line. */
export function told(receipt: Receipt): string {
  const lost = receipt.not_kept.length > 0 ? `; not kept: ${receipt.not_kept.map((one) => one.what).join(", ")}` : "";
  return `${span(receipt.total_ms)}${lost}`;
}

function Actions({ row }: { row: Row }): JSX.Element {
  const asleep = row.state === "suspended";
  const sleep = async (level: string) => tell(`${row.name} sleeps`, told(await post<Receipt>(at(row.id, "/suspend"), { to: level })));
  const drop = async () => {
    if (!(await confirm(`Remove ${row.name}?`, "Its files, its memory and its checkpoints that nothing was forked from are lost for good.", "Remove"))) return;
    await remove(at(row.id));
    tell(`${row.name} is gone`);
    go({ place: "sandboxes" });
  };
  return (
    <div class="actions">
      {asleep ? (
        <Button tone="main" act={async () => tell(`${row.name} is awake`, told(await post<Receipt>(at(row.id, "/wake"))))}>Wake</Button>
      ) : (
        <Button act={() => sleep("ram")}>Sleep</Button>
      )}
      {(!asleep || row.level === "ram") && <Button act={() => sleep("disk")}>Sleep on disk</Button>}
      <Button tone="danger" act={drop}>Remove</Button>
    </div>
  );
}

function Overview({ row }: { row: Row }): JSX.Element {
  return (
    <div class="overview">
      <Usage key={row.id} row={row} />
      <Facts row={row} />
    </div>
  );
}

/** What cannot be seen of one that sleeps, without waking it. */
export function Asleep({ row, what }: { row: Row; what: string }): JSX.Element {
  return (
    <Empty title={`${row.name} is asleep`}>
      <p>{what}</p>
      <Button tone="main" act={() => post(at(row.id, "/wake"))}>Wake it</Button>
    </Empty>
  );
}
