import type { JSX } from "preact";
import { list, put } from "../api";
import type { Pool, Template } from "../types";
import { complain, Empty, tell, Trouble, useLoaded } from "../ui";

export function Pools(): JSX.Element {
  const pools = useLoaded(() => list<Pool>("/v1/pools"), []);
  const templates = useLoaded(() => list<Template>("/v1/templates"), []);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    const template = String(data.get("template"));
    try {
      await put(`/v1/pools/${encodeURIComponent(template)}`, { min: Number(data.get("min")), max: Number(data.get("max")) });
      tell(`The pool of ${template} is set`);
      await pools.again();
    } catch (error) {
      complain(error);
    }
  };
  return (
    <section class="page" aria-labelledby="pools-title">
      <div class="head"><h1 id="pools-title">Pools</h1></div>
      <p class="lead">Sandboxes that are made ahead of time, so that a new one is there in a few milliseconds.</p>
      {pools.problem && <Trouble problem={pools.problem} again={() => void pools.again()} />}
      <form class="card line" onSubmit={(event) => void submit(event)}>
        <label class="field"><span>Template</span><select name="template">{templates.value?.map((one) => <option key={one.id}>{one.name}</option>)}</select></label>
        <label class="field"><span>At least</span><input name="min" type="number" min="0" max="1000" defaultValue="0" /></label>
        <label class="field"><span>At most</span><input name="max" type="number" min="0" max="1000" defaultValue="4" /></label>
        <button class="main">Set</button>
      </form>
      {pools.value?.length === 0 && <Empty title="No pool"><p>Every sandbox is made when it is asked for.</p></Empty>}
      {pools.value && pools.value.length > 0 && (
        <div class="scroll">
          <table>
            <thead><tr><th scope="col">Template</th><th scope="col">Engine</th><th scope="col">Ready</th><th scope="col">Coming</th><th scope="col">Size</th><th scope="col">Taken</th><th scope="col">Missed</th></tr></thead>
            <tbody>
              {pools.value.map((one) => (
                <tr key={`${one.template} ${one.engine}`}><th scope="row">{one.template}</th><td>{one.engine}</td><td>{one.ready}</td><td>{one.coming}</td><td>{one.min} – {one.max}</td><td>{one.taken}</td><td>{one.missed}</td></tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
