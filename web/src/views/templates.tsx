import type { JSX } from "preact";
import { list, remove } from "../api";
import { ago, bytes } from "../format";
import type { Template } from "../types";
import { Button, confirm, Empty, tell, Trouble, useLoaded } from "../ui";
import { creating } from "./create";

export function Templates(): JSX.Element {
  const { value, problem, again } = useLoaded(() => list<Template>("/v1/templates"), []);
  const drop = async (one: Template) => {
    if (!(await confirm(`Remove template ${one.name}?`, "Sandboxes that started from it stay as they are; new ones cannot be made from it.", "Remove"))) return;
    await remove(`/v1/templates/${encodeURIComponent(one.name)}`);
    tell(`Template ${one.name} is gone`);
    await again();
  };
  const now = Date.now();
  return (
    <section class="page" aria-labelledby="templates-title">
      <div class="head"><h1 id="templates-title">Templates</h1></div>
      {problem && <Trouble problem={problem} again={() => void again()} />}
      {value?.length === 0 && <Empty title="No template"><p><code>roost template build mini</code> makes one in a second.</p></Empty>}
      <div class="cards">
        {value?.map((one) => (
          <article key={one.id} class="card">
            <h2>{one.name}</h2>
            <p class="tags">{one.memory && <span class="tag good">starts with memory</span>}{one.tags?.map((tag) => <span key={tag.tag} class="tag">{tag.tag}</span>)}</p>
            <dl class="facts">
              <div><dt>Size</dt><dd>{bytes(one.size)}</dd></div>
              <div><dt>Sandboxes</dt><dd>{one.sandboxes}</dd></div>
              <div><dt>Made</dt><dd>{ago(one.created_at, now)}</dd></div>
            </dl>
            <footer>
              <Button tone="quiet" act={() => drop(one)}>Remove</Button>
              <Button onClick={() => (creating.value = { template: one.name })}>New sandbox from it</Button>
            </footer>
          </article>
        ))}
      </div>
    </section>
  );
}
