/** Where one is: in the fragment, so that nothing but `/` is asked of the daemon. */

import { signal } from "@preact/signals";

export const TABS = ["overview", "terminal", "files", "processes", "ports", "moments", "timeline", "services"] as const;
export type Tab = (typeof TABS)[number];
export const PLACES = ["sandboxes", "events", "templates", "pools", "doctor"] as const;
export type Place = (typeof PLACES)[number];

export type Route = { place: Place } | { place: "sandbox"; name: string; tab: Tab };

export function parse(hash: string): Route {
  const parts = hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const [first = "", name = "", tab = ""] = parts;
  if (first === "s" && name) return { place: "sandbox", name, tab: TABS.find((one) => one === tab) ?? "overview" };
  return { place: PLACES.find((one) => one === first) ?? "sandboxes" };
}

export function to(route: Route): string {
  if (route.place !== "sandbox") return `#/${route.place === "sandboxes" ? "" : route.place}`;
  return `#/s/${encodeURIComponent(route.name)}${route.tab === "overview" ? "" : `/${route.tab}`}`;
}

export const route = signal<Route>({ place: "sandboxes" });

export function go(next: Route): void {
  location.hash = to(next);
}

export function follow(): void {
  const read = () => (route.value = parse(location.hash));
  window.addEventListener("hashchange", read);
  read();
}
