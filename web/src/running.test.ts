import { expect, test } from "vitest";
import { family, look, pause } from "./running";
import type { Process } from "./types";

const process = (pid: number, ppid: number, cpu_us = 0, command = "x"): Process => ({
  pid, ppid, name: command, argv: [command], user: "root", state: "sleeping", threads: 1, cpu_us, rss: 0, started_at: "",
});

test("a share is what was used between two looks", () => {
  const first = look(undefined, [process(1, 0, 5000), process(2, 1, 10), process(3, 1, 10)], 1000);
  expect(first.shares.size).toBe(0);
  const next = look(first, [process(1, 0, 505_000), process(2, 1, 5), process(3, 1, 20, "other"), process(4, 1, 9)], 2000);
  expect([...next.shares]).toEqual([[1, 500]]);
});

test("long lists are looked at seldomer, and those that are dear to tell", () => {
  expect([0, 20, 100].map((count) => pause(count, "native"))).toEqual([3000, 3000, 15_000]);
  expect([0, 20].map((count) => pause(count, "gvisor"))).toEqual([15_000, 20_000]);
});

test("children stand below their parents, and what has none is a root", () => {
  const found = family([process(1, 0), process(5, 9), process(7, 300), process(300, 1), process(301, 7)]);
  expect(found.map((one) => `${one.depth} ${one.process.pid}`)).toEqual(["0 1", "1 300", "2 7", "3 301", "0 5"]);
});
