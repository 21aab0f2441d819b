/** Requests to `/v1`: the cookie says who asks, a header says that it is this page. */

import { signal } from "@preact/signals";
import type { Problem, Session } from "./types";

/** A refusal, with what the daemon says about it. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly problem: Problem,
  ) {
    super(problem.message);
  }
}

/** Who the browser is; unknown until asked. */
export const session = signal<Session | undefined>(undefined);

type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

export async function request(method: Method, path: string, body?: BodyInit, kind?: string): Promise<Response> {
  const headers: Record<string, string> = { "x-roost-page": "1" };
  if (kind) headers["content-type"] = kind;
  let response: Response;
  try {
    response = await fetch(path, { method, headers, credentials: "same-origin", ...(body === undefined ? {} : { body }) });
  } catch {
    throw new Refused(0, { code: "unreachable", message: "the daemon does not answer", hint: "is `roost serve` running?" });
  }
  if (response.ok) return response;
  let problem: Problem = { code: "internal", message: `${response.status} ${response.statusText}` };
  try {
    problem = ((await response.json()) as { error: Problem }).error;
  } catch {
    // What is no refusal of ours keeps its status line.
  }
  if (response.status === 401 && session.value?.logged_in) session.value = { logged_in: false };
  throw new Refused(response.status, problem);
}

async function json<T>(method: Method, path: string, body?: unknown): Promise<T> {
  const response = await request(method, path, body === undefined ? undefined : JSON.stringify(body), body === undefined ? undefined : "application/json");
  return (response.status === 204 ? undefined : await response.json()) as T;
}

export const get = <T>(path: string): Promise<T> => json<T>("GET", path);
export const post = <T>(path: string, body: unknown = {}): Promise<T> => json<T>("POST", path, body);
export const put = <T>(path: string, body: unknown): Promise<T> => json<T>("PUT", path, body);
export const patch = <T>(path: string, body: unknown): Promise<T> => json<T>("PATCH", path, body);
export const remove = (path: string): Promise<void> => json<void>("DELETE", path);

export async function list<T>(path: string): Promise<T[]> {
  return (await get<{ items: T[] }>(path)).items;
}

/** The path of a sandbox, or of something below it. */
export function at(sandbox: string, rest = ""): string {
  return `/v1/sandboxes/${encodeURIComponent(sandbox)}${rest}`;
}

export function query(values: Record<string, string | number | boolean>): string {
  return `?${new URLSearchParams(Object.entries(values).map(([key, value]) => [key, String(value)]))}`;
}

export function socket(path: string): WebSocket {
  const url = new URL(path, location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  const made = new WebSocket(url);
  made.binaryType = "arraybuffer";
  return made;
}

/** Text as it comes, until it ends or is given up. */
export async function follow(path: string, signal: AbortSignal, take: (text: string) => void): Promise<void> {
  const response = await fetch(path, { signal, credentials: "same-origin" });
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const part = await reader?.read();
    if (!part || part.done) return;
    take(part.value);
  }
}

/** Logs in with the code in the address, which is taken out of it. */
export async function logInByAddress(): Promise<Problem | undefined> {
  const code = /^#login=(\w+)$/.exec(location.hash)?.[1];
  if (!code) return undefined;
  history.replaceState(null, "", "/");
  return logIn({ code });
}

export async function logIn(by: { code?: string; token?: string }): Promise<Problem | undefined> {
  try {
    session.value = await post<Session>("/v1/session", by);
    return undefined;
  } catch (error) {
    return error instanceof Refused ? error.problem : { code: "internal", message: String(error) };
  }
}

export async function logOut(): Promise<void> {
  await remove("/v1/session");
  session.value = { logged_in: false };
}
