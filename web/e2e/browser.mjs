// A browser of a test's own, and what is always looked at: errors, other hosts, accessibility.

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
];
/** What has not come true by then will not. */
export const PATIENCE = 45_000;
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export const settings = {
  roost: process.env.ROOST_BIN ?? "roost",
  socket: process.env.ROOST_SOCKET,
  shots: process.env.ROOST_PAGE_SHOTS,
};

/** Runs the command line, as somebody beside the browser would. */
export function roost(...words) {
  return execFileSync(settings.roost, words, { env: { ...process.env, ROOST_SOCKET: settings.socket }, encoding: "utf8" }).trim();
}

export function loginLink() {
  return JSON.parse(roost("open", "--json")).url;
}

export function check(holds, what) {
  if (!holds) throw new Error(`this does not hold: ${what}`);
}

/** Waits until something outside the page is true. */
export async function eventually(what, holds) {
  const end = Date.now() + PATIENCE;
  for (;;) {
    if (await holds()) return;
    if (Date.now() > end) throw new Error(`this never came true: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** A browser whose folder goes with it. */
export async function withBrowser(work) {
  const home = mkdtempSync(join(tmpdir(), "roost-page-"));
  const context = await chromium.launchPersistentContext(join(home, "profile"), {
    executablePath: "/usr/bin/chromium", headless: true, args: FLAGS, viewport: { width: 1280, height: 800 }, colorScheme: "light",
  });
  context.setDefaultTimeout(PATIENCE);
  try {
    await work(context);
  } finally {
    await context.close();
    rmSync(home, { recursive: true, force: true });
  }
}

/** Watches a page: its errors, and which hosts it asks. */
export function witness(page, host) {
  const seen = { errors: [], hosts: new Set() };
  page.on("console", (message) => message.type() === "error" && seen.errors.push(`${message.text()} (${message.location().url})`));
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (["http:", "https:", "ws:", "wss:"].includes(url.protocol) && url.host !== host) seen.hosts.add(url.host);
  });
  return seen;
}

/** Nothing serious may stand in the way of anybody. */
export async function accessible(page, where) {
  await page.evaluate(AXE);
  const found = await page.evaluate(async () => {
    // Colours that are on their way from one to another are neither.
    const passing = document.getAnimations().filter((one) => one.effect?.getComputedTiming().endTime !== Infinity);
    await Promise.allSettled(passing.map((one) => one.finished));
    const { violations } = await globalThis.axe.run(document, { resultTypes: ["violations"] });
    return violations
      .filter((one) => ["serious", "critical"].includes(one.impact))
      .map((one) => `${one.id}: ${one.help} (${one.nodes.slice(0, 3).map((node) => `${node.target.join(" ")} ${node.any[0]?.message ?? ""}`).join("; ")})`);
  });
  check(found.length === 0, `${where} is accessible:\n  ${found.join("\n  ")}`);
}

export async function shot(page, name) {
  if (!settings.shots) return;
  mkdirSync(settings.shots, { recursive: true });
  await page.screenshot({ path: join(settings.shots, `${name}.png`), animations: "disabled" });
}
