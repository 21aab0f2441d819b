// Many sandboxes on the page: how smooth it is and what an open page costs the daemon. Prints one line of JSON.

import { readFileSync } from "node:fs";
import { check, eventually, loginLink, shot, withBrowser, witness } from "./browser.mjs";

const count = Number(process.env.ROOST_PAGE_COUNT);
const seconds = Number(process.env.ROOST_PAGE_SECONDS ?? 20);
const pid = Number(process.env.ROOST_PAGE_PID);
/** The kernel counts processor time in hundredths of a second. */
const HERTZ = 100;

function processorTime() {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  return (Number(fields[11]) + Number(fields[12])) / HERTZ;
}

/** The share of one processor that the daemon uses, in percent. */
async function share() {
  const before = processorTime();
  const began = process.hrtime.bigint();
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  const passed = Number(process.hrtime.bigint() - began) / 1e9;
  return ((processorTime() - before) / passed) * 100;
}

const without = await share();
await withBrowser(async (context) => {
  const link = loginLink();
  const page = context.pages()[0] ?? (await context.newPage());
  const seen = witness(page, new URL(link).host);
  await page.goto(link);
  await eventually("all are listed", async () => (await page.locator("nav small").innerText()) === String(count));
  // Until everything was measured once.
  await eventually("the last has its memory", async () => {
    await page.locator(".rows").evaluate((element) => (element.scrollTop = element.scrollHeight));
    return (await page.locator(".rows li .memory > span").last().innerText()) !== "–";
  });
  const rows = await page.locator(".rows li").count();
  check(rows > 5 && rows < 60, `only the rows that are seen are in the page, not ${rows}`);
  await shot(page, "many");
  const withPage = await share();
  const frames = await page.evaluate(async () => {
    const list = document.querySelector(".rows");
    const times = [];
    let last = performance.now();
    const end = last + 4000;
    list.scrollTop = 0;
    while (last < end) {
      const now = await new Promise((resolve) => requestAnimationFrame(resolve));
      times.push(now - last);
      last = now;
      list.scrollTop = (list.scrollTop + 90) % list.scrollHeight;
    }
    times.shift();
    times.sort((a, b) => a - b);
    return { frames: times.length, p50: times[Math.floor(times.length / 2)], p95: times[Math.floor(times.length * 0.95)], longest: times.at(-1) };
  });
  check(seen.errors.length === 0, `no errors in the console: ${seen.errors.join("\n")}`);
  const round = (value) => Math.round(value * 100) / 100;
  console.log(JSON.stringify({
    sandboxes: count, rows, daemon_without_page_percent: round(without), daemon_with_page_percent: round(withPage), cost_percent: round(withPage - without),
    frames: frames.frames, frame_p50_ms: round(frames.p50), frame_p95_ms: round(frames.p95), frame_longest_ms: round(frames.longest),
  }));
});
