import { expect, test } from "vitest";
import { parse, to } from "./route";

test("every place has an address that leads back to it", () => {
  for (const route of [
    { place: "sandboxes" }, { place: "doctor" },
    { place: "sandbox", name: "web", tab: "overview" }, { place: "sandbox", name: "a b/c", tab: "files" },
  ] as const) {
    expect(parse(to(route))).toEqual(route);
  }
});

test("what leads nowhere leads home", () => {
  expect(parse("#/nowhere")).toEqual({ place: "sandboxes" });
  expect(parse("#/s/")).toEqual({ place: "sandboxes" });
  expect(parse("#/s/web/nothing")).toEqual({ place: "sandbox", name: "web", tab: "overview" });
});
