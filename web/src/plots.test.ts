import { expect, test } from "vitest";
import { points, stretches } from "./plots";

test("a line ends at the right edge and stays inside", () => {
  expect(points([0, 10, 20], 100, 24, 10, 11)).toBe("80.0,23.0 90.0,1.0 100.0,1.0");
  expect(points([], 100, 24, 10, 11)).toBe("");
});

test("a ledger becomes stretches of sleep and wake", () => {
  const entry = (second: number, kind: "created" | "slept" | "woke") => ({ at: `2027-01-15T08:00:0${second}Z`, kind, lasted_ms: 0 });
  const now = Date.parse("2027-01-15T08:00:09Z");
  const found = stretches([entry(5, "woke"), entry(0, "created"), entry(2, "slept")], now, "active");
  expect(found.map((one) => [one.awake, (one.to - one.from) / 1000])).toEqual([[true, 2], [false, 3], [true, 4]]);
});
