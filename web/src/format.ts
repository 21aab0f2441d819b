/** Numbers and times for people. */

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(count: number): string {
  let value = count;
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${Number(value.toFixed(digits))} ${UNITS[unit] ?? ""}`;
}

/** A length of time in its two largest parts at most. */
export function span(ms: number): string {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return rest(`${minutes} min`, Math.floor(seconds % 60), "s", minutes < 10);
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return rest(`${hours} h`, minutes % 60, "min", hours < 24);
  return rest(`${Math.floor(hours / 24)} d`, hours % 24, "h", hours < 240);
}

function rest(whole: string, part: number, unit: string, wanted: boolean): string {
  return wanted && part > 0 ? `${whole} ${part} ${unit}` : whole;
}

export function ago(moment: string, now: number): string {
  const passed = now - Date.parse(moment);
  return passed < 2000 ? "just now" : `${span(passed)} ago`;
}

export function until(moment: string, now: number): string {
  const left = Date.parse(moment) - now;
  return left <= 0 ? "now" : `in ${span(left)}`;
}

export function clock(moment: string): string {
  return new Date(moment).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

/** A share of one processor, given in thousandths. */
export function share(thousandths: number): string {
  const percent = thousandths / 10;
  return `${percent >= 10 || percent === 0 ? Math.round(percent) : percent.toFixed(1)} %`;
}

/** The shortest end of an id that still tells it from others: ids of one moment start alike. */
export function shortId(id: string): string {
  return id.slice(-6);
}

/** What a person may write for a size: `512m`, `2 GiB`; nothing if it is none. */
export function parseSize(text: string): number | undefined {
  const found = /^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*$/i.exec(text);
  if (!found) return undefined;
  const power = ["", "k", "m", "g", "t"].indexOf((found[2] ?? "").toLowerCase());
  return Math.round(Number(found[1]) * 1024 ** power);
}
