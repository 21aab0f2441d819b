import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { list, post } from "../api";
import { parseSize } from "../format";
import { go } from "../route";
import type { Problem, SandboxView, Template } from "../types";
import { Button, Dialog, problemOf, tell, Trouble, useLoaded } from "../ui";

/** Set while a sandbox is being thought up. */
export const creating = signal<{ template?: string } | undefined>(undefined);

export function Create({ start }: { start: { template?: string } }): JSX.Element {
  const templates = useLoaded(() => list<Template>("/v1/templates"), []);
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);
  const close = () => (creating.value = undefined);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    const text = (name: string) => String(data.get(name) ?? "").trim();
    const memory = parseSize(text("memory"));
    if (text("memory") && memory === undefined) return setProblem({ code: "", message: `“${text("memory")}” is not a size`, hint: "write 512m or 2g" });
    setBusy(true);
    try {
      const made = await post<SandboxView>("/v1/sandboxes", {
        ...(text("name") && { name: text("name") }),
        ...(text("template") && { template: text("template") }),
        ...(text("engine") && { engine: text("engine") }),
        ...((text("cpus") || memory) && { limits: { ...(text("cpus") && { cpus: Number(text("cpus")) }), ...(memory && { memory }) } }),
        ...(text("idle") && { idle: { after: text("idle") } }),
        ...(text("ttl") && { ttl: text("ttl") }),
        network: { enabled: data.get("network") !== null },
      });
      tell(`${made.name} is awake`);
      close();
      go({ place: "sandbox", name: made.name, tab: "overview" });
    } catch (error) {
      setProblem(problemOf(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog title="New sandbox" close={close}>
      <form onSubmit={(event) => void submit(event)}>
        {problem && <Trouble problem={problem} />}
        <label class="field">
          <span>Name</span>
          <input name="name" placeholder="made up if left empty" autocomplete="off" autofocus pattern="[a-z0-9][a-z0-9\-]*" title="small letters, digits and dashes" />
        </label>
        <label class="field">
          <span>Template</span>
          <select name="template" key={templates.value?.length}>
            <option value="">the daemon's default</option>
            {templates.value?.map((one) => <option key={one.id} value={one.name} selected={one.name === start.template}>{one.name}</option>)}
          </select>
        </label>
        <details>
          <summary>Limits, sleep and network</summary>
          <div class="pair">
            <label class="field"><span>Processors</span><input name="cpus" inputmode="decimal" placeholder="default" /></label>
            <label class="field"><span>Memory</span><input name="memory" placeholder="512m, 2g" /></label>
          </div>
          <div class="pair">
            <label class="field"><span>Sleeps after</span><input name="idle" placeholder="15s, 10m, never" /></label>
            <label class="field"><span>Lives for</span><input name="ttl" placeholder="for good" /></label>
          </div>
          <div class="pair">
            <label class="field">
              <span>Engine</span>
              <select name="engine"><option value="">default</option><option>native</option><option>gvisor</option><option>auto</option></select>
            </label>
            <label class="check"><input type="checkbox" name="network" defaultChecked /> <span>May reach the network</span></label>
          </div>
        </details>
        <footer>
          <Button onClick={close}>Cancel</Button>
          <button type="submit" class="main" disabled={busy} aria-busy={busy}>{busy ? "Making it…" : "Create"}</button>
        </footer>
      </form>
    </Dialog>
  );
}
