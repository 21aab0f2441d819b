import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { get } from "../api";
import type { Check, Doctor } from "../types";
import { Button, Trouble, useLoaded } from "../ui";

export function DoctorView(): JSX.Element {
  const [proven, setProven] = useState<Doctor>();
  const { value, problem, again } = useLoaded(() => get<Doctor>("/v1/doctor"), []);
  const report = proven ?? value;
  return (
    <section class="page" aria-labelledby="doctor-title">
      <div class="head">
        <h1 id="doctor-title">Doctor</h1>
        <Button act={async () => setProven(await get<Doctor>("/v1/doctor?prove=true"))}>Prove it with a sandbox</Button>
      </div>
      {problem && <Trouble problem={problem} again={() => void again()} />}
      {report && <p class="lead">Roost {report.version} on {report.kernel}</p>}
      <div class="cards wide">
        {report?.engines.map((one) => (
          <article key={one.engine} class="card">
            <h2>{one.engine} <span class={`tag ${one.fit ? "good" : "bad"}`}>{one.fit ? (one.proven_ms ? `works: ${Math.round(one.proven_ms)} ms` : "fit") : "does not work here"}</span></h2>
            {one.problem && <p class="hint">{one.problem}</p>}
            <Checks checks={one.checks} />
          </article>
        ))}
        {report && <article class="card"><h2>host</h2><Checks checks={report.checks} /></article>}
      </div>
    </section>
  );
}

function Checks({ checks }: { checks: readonly Check[] }): JSX.Element {
  return (
    <ul class="checks">
      {checks.map((one) => (
        <li key={one.what}>
          <span class={`tag ${one.ok ? "good" : one.required ? "bad" : "warn"}`}>{one.ok ? "ok" : one.required ? "no" : "note"}</span>
          <span>{one.what}</span>
          <small>{one.detail}</small>
        </li>
      ))}
    </ul>
  );
}
