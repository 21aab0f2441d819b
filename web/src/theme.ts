/** Light or dark: as the system has it, unless one says otherwise. */

import { signal } from "@preact/signals";

const KEY = "roost-theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");

export const dark = signal(false);

function read(): boolean {
  const chosen = localStorage.getItem(KEY);
  return chosen ? chosen === "dark" : system.matches;
}

function show(): void {
  dark.value = read();
  document.documentElement.dataset["theme"] = dark.value ? "dark" : "light";
}

export function startTheme(): void {
  system.addEventListener("change", show);
  show();
}

export function switchTheme(): void {
  const next = !dark.value;
  // What the system says anyway need not be remembered.
  if (next === system.matches) localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, next ? "dark" : "light");
  show();
}
