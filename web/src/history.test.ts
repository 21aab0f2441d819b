import { expect, test } from "vitest";
import { milliseconds, series } from "./history";

test("spans as the daemon writes them", () => {
  expect(["60s", "1m", "15m", "2h", "7d", "soon"].map(milliseconds)).toEqual([60_000, 60_000, 900_000, 7_200_000, 604_800_000, 0]);
});

test("steps become shares of their time, and what nobody saw is nothing", () => {
  const at = (minute: number) => new Date(Date.UTC(2027, 0, 15, 8, minute)).toISOString();
  const history = {
    step: "1m",
    steps: [
      { at: at(1), seen_ms: 30_000, awake_ms: 15_000, cpu_ms: 3000, memory: 10 },
      { at: at(3), seen_ms: 60_000, awake_ms: 60_000, cpu_ms: 60_000, memory: 20 },
    ],
  };
  const found = series(history, 2 * 3_600_000, Date.parse(at(3)) + 59_000);
  expect(found).toEqual({ cpu: [100, 0, 1000], memory: [10, 0, 20], awake: [500, 0, 1000], each: 60_000, room: 120 });
  // The next step has begun and has nothing in it.
  expect(series(history, 2 * 3_600_000, Date.parse(at(4))).cpu).toEqual([100, 0, 1000]);
  expect(series({ step: "1m", steps: [] }, 3_600_000, Date.parse(at(4))).cpu).toEqual([0]);
});
