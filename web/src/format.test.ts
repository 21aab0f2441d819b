import { describe, expect, test } from "vitest";
import { ago, bytes, parseSize, share, span, until } from "./format";

describe("format", () => {
  test("sizes have three digits at most", () => {
    expect([0, 999, 1000, 1536, 10 * 1024, 5 * 1024 ** 2, 3.25 * 1024 ** 3].map(bytes)).toEqual([
      "0 B", "999 B", "0.98 KiB", "1.5 KiB", "10 KiB", "5 MiB", "3.25 GiB",
    ]);
  });

  test("times have two parts at most", () => {
    expect([0, 250, 1500, 42_000, 65_000, 3_600_000, 5_400_000, 200_000_000].map(span)).toEqual([
      "0 ms", "250 ms", "1.5 s", "42 s", "1 min 5 s", "1 h", "1 h 30 min", "2 d 7 h",
    ]);
  });

  test("moments are told from now", () => {
    const now = Date.parse("2027-01-15T08:00:10Z");
    expect(ago("2027-01-15T08:00:09Z", now)).toBe("just now");
    expect(ago("2027-01-15T08:00:00Z", now)).toBe("10 s ago");
    expect(until("2027-01-15T08:00:30Z", now)).toBe("in 20 s");
    expect(until("2027-01-15T08:00:00Z", now)).toBe("now");
  });

  test("shares and sizes", () => {
    expect([0, 4, 250, 1999].map(share)).toEqual(["0 %", "0.4 %", "25 %", "200 %"]);
    expect(["512m", "2 GiB", "1.5g", "100", "lots", ""].map(parseSize)).toEqual([
      512 * 1024 ** 2, 2 * 1024 ** 3, 1.5 * 1024 ** 3, 100, undefined, undefined,
    ]);
  });
});
