/** The frame: who is logged in, where one is, the keyboard. */

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { logOut, session } from "./api";
import { live, rows, watch } from "./board";
import { Bird } from "./bird";
import { useKeys } from "./keys";
import { PLACES, route, to, type Place } from "./route";
import { dark, switchTheme } from "./theme";
import { Button, Confirmation, Dialog, Notes, Prompt } from "./ui";
import { Create, creating } from "./views/create";
import { DoctorView } from "./views/doctor";
import { Events } from "./views/events";
import { Sandboxes } from "./views/list";
import { Login } from "./views/login";
import { Pools } from "./views/pools";
import { Sandbox } from "./views/sandbox";
import { Templates } from "./views/templates";

export const helping = signal(false);

const WORDS: Record<Place, string> = { sandboxes: "Sandboxes", events: "Events", templates: "Templates", pools: "Pools", doctor: "Doctor" };

export function App(): JSX.Element | null {
  const who = session.value;
  if (!who) return null;
  return (
    <>
      {who.logged_in ? <Inside /> : <Login />}
      <Notes />
      <Confirmation />
      <Prompt />
    </>
  );
}

function Inside(): JSX.Element {
  useEffect(watch, []);
  useKeys(helping);
  const here = route.value;
  return (
    <div class="frame">
      <header class="top">
        <a class="brand" href="#/" aria-label="Roost, all sandboxes">
          <Bird />
          <span>Roost</span>
        </a>
        <nav aria-label="Places">
          {PLACES.map((place) => {
            const current = here.place === place || (place === "sandboxes" && here.place === "sandbox");
            return (
              <a key={place} href={to({ place })} aria-current={current ? "page" : undefined}>
                {WORDS[place]}
                {place === "sandboxes" && <small>{rows.value.length}</small>}
              </a>
            );
          })}
        </nav>
        <div class="tools">
          {!live.value && <span class="offline" role="status">reconnecting…</span>}
          <Button tone="main" onClick={() => (creating.value = {})}><span aria-hidden="true">+</span><span>New<span class="wide"> sandbox</span></span></Button>
          <button class="quiet icon" aria-label={dark.value ? "Light colours" : "Dark colours"} title="Light or dark (t)" onClick={switchTheme}>{dark.value ? "☀" : "☾"}</button>
          <button class="quiet icon" aria-label="Keys" title="Keys (?)" onClick={() => (helping.value = true)}>?</button>
          <Button tone="quiet" class="quiet wide" act={logOut} title={session.value?.token ? `logged in with token ${session.value.token}` : "logged in as the owner"}>Log out</Button>
        </div>
      </header>
      <main>{view()}</main>
      {creating.value && <Create start={creating.value} />}
      {helping.value && <Help />}
    </div>
  );
}

function view(): JSX.Element {
  const here = route.value;
  switch (here.place) {
    case "sandbox": return <Sandbox key={here.name} name={here.name} tab={here.tab} />;
    case "events": return <Events />;
    case "templates": return <Templates />;
    case "pools": return <Pools />;
    case "doctor": return <DoctorView />;
    case "sandboxes": return <Sandboxes />;
  }
}

const KEYS: [string, string][] = [
  ["/", "find a sandbox"], ["j  k", "down, up"], ["Enter", "open"], ["c", "new sandbox"], ["1 … 8", "parts of a sandbox"],
  ["g s", "sandboxes"], ["g e", "events"], ["g t", "templates"], ["g p", "pools"], ["g d", "doctor"],
  ["t", "light or dark"], ["Esc", "close, go back"], ["?", "this help"],
];

function Help(): JSX.Element {
  return (
    <Dialog title="Keys" close={() => (helping.value = false)}>
      <dl class="keys">
        {KEYS.map(([key, what]) => (
          <div key={key}>
            <dt>{key.split(" ").filter(Boolean).map((one) => (one === "…" ? one : <kbd key={one}>{one}</kbd>))}</dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <footer>
        <Button tone="quiet" act={logOut}>Log out</Button>
      </footer>
    </Dialog>
  );
}
