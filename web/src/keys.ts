/** The keyboard. */

import { signal, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { go, route, TABS, type Place } from "./route";
import { switchTheme } from "./theme";
import { creating } from "./views/create";

/** What the list does when it is asked to move or to open. */
export const moves = signal<{ step: (by: number) => void; open: () => void; find: () => void } | undefined>(undefined);

/** Whether one went to the list in order to find something. */
export const toFind = signal(false);

const PLACE_KEYS: Record<string, Place> = { s: "sandboxes", e: "events", t: "templates", p: "pools", d: "doctor" };

export function useKeys(helping: Signal<boolean>): void {
  useEffect(() => {
    let pending = false;
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      const writing = target.matches("input, textarea, select, [contenteditable]") || target.closest(".xterm") !== null;
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) return escape(target, writing);
      if (writing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      if (pending) {
        pending = false;
        const place = PLACE_KEYS[event.key];
        if (place) go({ place });
        return;
      }
      if (single(event.key, helping)) event.preventDefault();
      else if (event.key === "g") pending = true;
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, []);
}

function single(key: string, helping: Signal<boolean>): boolean {
  const here = route.value;
  if (here.place === "sandbox" && /^[1-8]$/.test(key)) {
    go({ ...here, tab: TABS[Number(key) - 1] ?? "overview" });
    return true;
  }
  switch (key) {
    case "/":
      if (moves.value) moves.value.find();
      else {
        // The list looks for it when it is there.
        toFind.value = true;
        go({ place: "sandboxes" });
      }
      return true;
    case "j": case "ArrowDown": moves.value?.step(1); return moves.value !== undefined;
    case "k": case "ArrowUp": moves.value?.step(-1); return moves.value !== undefined;
    case "Enter":
      if (!moves.value || document.activeElement?.matches("a, button")) return false;
      moves.value.open();
      return true;
    case "c": creating.value = {}; return true;
    case "t": switchTheme(); return true;
    case "?": helping.value = true; return true;
    default: return false;
  }
}

/** Out of what one writes in first, then back to the list. The terminal has the key for itself. */
function escape(target: HTMLElement, writing: boolean): void {
  if (target.closest(".xterm")) return;
  if (writing) target.blur();
  else if (route.value.place !== "sandboxes") go({ place: "sandboxes" });
}
