import { expect, test } from "vitest";
import { flat, moments } from "./tree";
import type { Checkpoint, Row } from "./types";

const row = (name: string, checkpoint?: string): Row => ({
  id: `sbx_${name}`, name, state: "active", since: "", template: "mini", engine: "native", created_at: "",
  cpu: 0, memory: 0, memory_limit: 1, disk: 0, disk_limit: 1,
  ...(checkpoint ? { parent: { sandbox: "sbx_web", checkpoint } } : {}),
});
const moment = (id: string, parent: string | null, second: number): Checkpoint => ({
  id, parent, sandbox: "sbx_web", sandbox_name: "web", created_at: `2027-01-15T08:00:0${second}Z`, comment: null,
  memory: true, automatic: false, bytes: { memory: 0, disk_exclusive: 0, disk_referenced: 0 }, processes: [],
});
const drawn = (origin: ReturnType<typeof moments>) => flat(origin).map((one) => `${" ".repeat(one.depth)}${one.key}`);

test("a sandbox without moments stands where it began", () => {
  expect(drawn(moments(row("web"), [], []))).toEqual(["from:mini", "now"]);
});

test("branches go to the right of the line that leads on", () => {
  const checkpoints = [moment("b", "a", 2), moment("a", null, 1), moment("c", "a", 3), moment("d", "c", 4)];
  const tree = moments(row("web"), checkpoints, [row("fork", "a")], "d");
  expect(drawn(tree)).toEqual(["from:mini", "a", " b", " sbx_fork", "c", "d", "now"]);
});

test("after going back, now hangs where it went back to", () => {
  const tree = moments(row("web"), [moment("a", null, 1), moment("b", "a", 2)], [], "a");
  expect(flat(tree).find((one) => one.key === "now")?.parent?.key).toBe("a");
});

test("what lost its parent starts at the origin, and no line is used twice", () => {
  const tree = moments(row("web"), [moment("x", "gone", 1)], [row("fork", "lost")]);
  const all = flat(tree);
  expect(all.find((one) => one.key === "x")?.parent?.kind).toBe("origin");
  expect(all.find((one) => one.key === "sbx_fork")?.parent?.kind).toBe("origin");
  expect(new Set(all.map((one) => one.line)).size).toBe(all.length);
});
