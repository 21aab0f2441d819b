/** What a sandbox uses: the last two minutes as they pass, or hours and days as the daemon remembers them. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { at, get, query } from "../api";
import { activity, beat, KEPT } from "../board";
import { bytes, share } from "../format";
import { milliseconds, series } from "../history";
import { Plot } from "../plots";
import type { Row, UsageHistory } from "../types";
import { Trouble, useLoaded } from "../ui";

const SECOND = 1000;
const TIMES = [["now", "2 minutes"], ["2h", "2 hours"], ["24h", "24 hours"], ["7d", "7 days"]] as const;
type Time = (typeof TIMES)[number][0];

export function Usage({ row }: { row: Row }): JSX.Element {
  const [time, setTime] = useState<Time>("now");
  return (
    <section aria-label="Usage" class="usage">
      <div class="choice" role="group" aria-label="Over which time">
        {TIMES.map(([value, words]) => <button key={value} type="button" class="quiet" aria-pressed={value === time} onClick={() => setTime(value)}>{words}</button>)}
      </div>
      {time === "now" ? <Live row={row} /> : <Past key={time} row={row} over={time} />}
    </section>
  );
}

function Live({ row }: { row: Row }): JSX.Element {
  const samples = activity(row.id);
  return (
    <div class="plots">
      <Plot title="Processor" tone="cpu" values={samples.map((one) => one.cpu)} room={KEPT} each={SECOND} least={100} show={share} />
      <Plot title="Memory" tone="memory" values={samples.length ? samples.map((one) => one.memory) : [row.memory]} room={KEPT} each={SECOND} least={4 << 20} limit={bytes(row.memory_limit)} show={bytes} />
      <Plot title="Disk" tone="disk" values={samples.length ? samples.map((one) => one.disk) : [row.disk]} room={KEPT} each={SECOND} least={1 << 20} limit={bytes(row.disk_limit)} show={bytes} />
    </div>
  );
}

function Past({ row, over }: { row: Row; over: Exclude<Time, "now"> }): JSX.Element {
  const minute = Math.floor(beat.value / 60);
  const history = useLoaded(() => get<UsageHistory>(at(row.id, `/usage/history${query({ over })}`)), [row.id, row.state, minute]);
  if (history.problem) return <Trouble problem={history.problem} again={() => void history.again()} />;
  if (!history.value) return <div class="plots" />;
  const { cpu, memory, awake, each, room } = series(history.value, milliseconds(over), Date.now());
  return (
    <div class="plots">
      <Plot title="Processor" tone="cpu" values={cpu} room={room} each={each} least={100} show={share} />
      <Plot title="Memory" tone="memory" values={memory} room={room} each={each} least={4 << 20} limit={bytes(row.memory_limit)} show={bytes} />
      <Plot title="Awake" tone="awake" values={awake} room={room} each={each} least={1000} most={1000} show={share} />
    </div>
  );
}
