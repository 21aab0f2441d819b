import type { JSX } from "preact";
import { at, get, patch } from "../api";
import { beat } from "../board";
import { ago, bytes, span, until } from "../format";
import { SleepBar } from "../plots";
import type { Row, SandboxView, Usage, Why } from "../types";
import { ask, Button, tell, Trouble, useLoaded } from "../ui";

/** Why it is awake or asleep, what comes next, what it costs, what it is. */
export function Facts({ row }: { row: Row }): JSX.Element {
  const view = useLoaded(() => get<SandboxView>(at(row.id)), [row.id, row.since, row.state]);
  const why = useLoaded(() => get<Why>(at(row.id, "/why")), [row.id, row.since, row.state, Math.floor(beat.value / 3)]);
  const usage = useLoaded(() => get<Usage>(at(row.id, "/usage")), [row.id, row.since]);
  const problem = view.problem ?? why.problem;
  const sandbox = view.value;
  const now = Date.now();
  const setIdle = async () => {
    const after = await ask("When it sleeps by itself", "After this long without anything to do", "Set", sandbox?.idle.after);
    if (after === undefined) return;
    await patch(at(row.id), { idle: { after } });
    tell(`${row.name} sleeps after ${after}`);
    await view.again();
  };
  const spent = usage.value?.spent;
  return (
    <>
      {problem && <Trouble problem={problem} />}
      <div class="cards wide">
        <article class="card">
          <h2>Why it is {row.state === "suspended" ? "asleep" : "awake"}</h2>
          {why.value && <WhyLines why={why.value} now={now} />}
          {why.value && <SleepBar ledger={why.value.ledger} now={now} state={row.state} />}
        </article>
        <article class="card">
          <h2>What it is</h2>
          {sandbox && (
            <dl class="facts">
              <div><dt>Template</dt><dd>{sandbox.template}</dd></div>
              <div><dt>Engine</dt><dd>{sandbox.engine}</dd></div>
              <div><dt>Made</dt><dd>{ago(sandbox.created_at, now)}</dd></div>
              <div><dt>Limits</dt><dd>{sandbox.limits.cpus} CPU, {bytes(sandbox.limits.memory)} memory, {bytes(sandbox.limits.disk)} disk</dd></div>
              <div><dt>Sleeps after</dt><dd>{sandbox.idle.after} <Button tone="quiet" act={setIdle} aria-label="Change when it sleeps">change</Button></dd></div>
              <div><dt>Network</dt><dd>{sandbox.network.enabled ? "may reach out" : "closed"}</dd></div>
              {sandbox.capabilities?.length ? <div><dt>Capabilities</dt><dd>{sandbox.capabilities.join(", ")}</dd></div> : null}
              {sandbox.expires_at && <div><dt>Ends</dt><dd>{until(sandbox.expires_at, now)}</dd></div>}
              {Object.entries(sandbox.labels).map(([key, value]) => <div key={key}><dt>{key}</dt><dd>{value}</dd></div>)}
              <div><dt>Id</dt><dd><code>{sandbox.id}</code></dd></div>
            </dl>
          )}
        </article>
        <article class="card">
          <h2>What it has cost</h2>
          {spent && (
            <dl class="facts">
              <div><dt>Awake</dt><dd>{span(spent.active_ms ?? 0)}</dd></div>
              <div><dt>Asleep in memory</dt><dd>{span(spent.ram_ms ?? 0)}</dd></div>
              <div><dt>Asleep on disk</dt><dd>{span((spent.disk_ms ?? 0) + (spent.files_ms ?? 0))}</dd></div>
              <div><dt>Sleeps and wakes</dt><dd>{spent.sleeps ?? 0} and {spent.wakes ?? 0}</dd></div>
              <div><dt>Disk of its own</dt><dd>{bytes(row.disk)}</dd></div>
            </dl>
          )}
        </article>
      </div>
    </>
  );
}

export function WhyLines({ why, now }: { why: Why; now: number }): JSX.Element {
  return (
    <ul class="whys">
      {why.reason && <li>{why.reason}</li>}
      {why.never && <li>Never sleeps by itself: {why.never}</li>}
      {why.keeps_awake.map((one, index) => <li key={index}>{one.what} <small>({one.signal})</small></li>)}
      {why.state === "active" && !why.never && why.keeps_awake.length === 0 && <li>Nothing keeps it awake</li>}
      {why.sleeps_at && <li>Falls asleep <strong>{until(why.sleeps_at, now)}</strong></li>}
      {why.deepens_at && <li>Goes to disk {until(why.deepens_at, now)}</li>}
      {why.wakes_at && <li>An alarm wakes it {until(why.wakes_at, now)}</li>}
      {why.state === "suspended" && <li>Anything that needs it wakes it</li>}
      {why.not_saved && <li>Its memory could not be saved: {why.not_saved}</li>}
    </ul>
  );
}
