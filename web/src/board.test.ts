import { expect, test } from "vitest";
import { Board, KEPT } from "./board";
import type { Row } from "./types";

const row = (name: string, state: Row["state"] = "active"): Row => ({
  id: name, name, state, since: "", template: "mini", engine: "native", created_at: "",
  cpu: 5, memory: 1, memory_limit: 2, disk: 3, disk_limit: 4,
});

test("changes add, replace and remove; everything replaces everything", () => {
  const board = new Board();
  board.apply({ all: true, rows: [row("a"), row("b")], gone: [] });
  board.apply({ all: false, rows: [row("a", "suspended"), row("c")], gone: ["b"] });
  expect([...board.rows.values()].map((one) => `${one.name} ${one.state}`)).toEqual(["a suspended", "c active"]);
  board.apply({ all: true, rows: [row("c")], gone: [] });
  expect([...board.rows.keys()]).toEqual(["c"]);
});

test("activity is kept for a while, and not at all for what only sleeps", () => {
  const board = new Board();
  board.apply({ all: true, rows: [row("a"), row("z", "suspended")], gone: [] });
  for (let second = 0; second < KEPT + 10; second++) board.sample();
  expect(board.activity("a").length).toBe(KEPT);
  expect(board.activity("z").length).toBe(0);
  board.apply({ all: false, rows: [row("a", "suspended")], gone: [] });
  board.sample();
  expect(board.activity("a").at(-1)).toEqual({ cpu: 0, memory: 1, disk: 3, awake: false });
});
