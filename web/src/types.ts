/** What `/v1` says, as far as the page reads it. */

export type State = "creating" | "active" | "suspending" | "suspended" | "resuming" | "terminated";
export type Level = "ram" | "disk" | "files";

export interface Row {
  id: string;
  name: string;
  state: State;
  level?: Level;
  since: string;
  reason?: string;
  template: string;
  engine: string;
  parent?: { sandbox: string; checkpoint?: string | null };
  labels?: Record<string, string>;
  created_at: string;
  /** Thousandths of one processor. */
  cpu: number;
  memory: number;
  memory_limit: number;
  disk: number;
  disk_limit: number;
}

export interface OverviewChange {
  all: boolean;
  rows: Row[];
  gone: string[];
}

export interface Problem {
  code: string;
  message: string;
  hint?: string | null;
}

export interface Session {
  logged_in: boolean;
  token?: string | null;
  expires_at?: string | null;
}

export interface IdlePolicy {
  after: string;
  to: Level;
  deepen_after: string;
}

export interface PortView {
  port: number;
  process?: string | null;
  url?: string | null;
  access?: "private" | "public";
}

export interface SandboxView {
  id: string;
  name: string;
  state: State;
  level?: Level | null;
  template: string;
  engine: string;
  created_at: string;
  generation: number;
  idle: IdlePolicy;
  ttl?: string | null;
  expires_at?: string | null;
  limits: { cpus: number; memory: number; disk: number; pids: number };
  network: { enabled: boolean };
  capabilities?: string[];
  labels: Record<string, string>;
  ports: PortView[];
  reason?: string | null;
  stays?: boolean;
  parent?: { sandbox: string; checkpoint?: string | null } | null;
}

export interface LedgerEntry {
  at: string;
  kind: "created" | "slept" | "woke" | "restored" | "crashed";
  cause?: string | null;
  level?: Level | null;
  took_ms?: number | null;
  lasted_ms: number;
}

export interface Why {
  state: State;
  level?: Level | null;
  state_since: string;
  reason?: string | null;
  never?: string | null;
  not_saved?: string | null;
  sleeps_at?: string | null;
  deepens_at?: string | null;
  wakes_at?: string | null;
  idle: IdlePolicy;
  keeps_awake: { signal: string; what: string; since?: string | null }[];
  ledger: LedgerEntry[];
}

export interface Usage {
  disk_exclusive: number;
  spent: { active_ms?: number; ram_ms?: number; disk_ms?: number; files_ms?: number; sleeps?: number; wakes?: number };
}

export interface UsageHistory {
  step: string;
  steps: { at: string; seen_ms: number; awake_ms: number; cpu_ms: number; memory: number }[];
}

export interface Receipt {
  operation: string;
  total_ms: number;
  paused_ms?: number | null;
  kept: string[];
  not_kept: { what: string; why: string }[];
  checkpoint?: string | null;
}

export interface Checkpoint {
  id: string;
  sandbox: string;
  sandbox_name: string;
  created_at: string;
  comment?: string | null;
  parent?: string | null;
  memory: boolean;
  automatic: boolean;
  bytes: { memory: number; disk_exclusive: number; disk_referenced: number };
  processes: { pid: number; name: string }[];
}

export interface Diff {
  files: { kind: "added" | "changed" | "removed"; path: string; size: number }[];
  processes_started: { pid: number; name: string }[];
  processes_ended: { pid: number; name: string }[];
  truncated: boolean;
}

export interface FileStat {
  name: string;
  path: string;
  kind: "file" | "folder" | "symlink" | "other";
  size: number;
  mode: string;
  modified_at: string;
  target?: string | null;
}

export interface Exec {
  id: string;
  argv: string[];
  pid: number;
  pty: boolean;
  user: string;
  cwd: string;
  started_at: string;
  status: { state: "running" } | { state: "exited"; exit_code: number; signal?: number | null; at: string };
}

export interface Process {
  pid: number;
  ppid: number;
  name: string;
  argv: string[];
  user: string;
  state: "running" | "sleeping" | "blocked" | "stopped" | "zombie" | "other";
  threads: number;
  cpu_us: number;
  rss: number;
  started_at: string;
  exec?: string | null;
  service?: string | null;
}

export interface ProcessList {
  state: State;
  items: Process[];
}

export interface Service {
  name: string;
  state: "running" | "starting" | "backoff" | "stopped" | "failed" | "suspended";
  pid?: number | null;
  restarts: number;
  reason?: string | null;
  since?: string | null;
  log: { start: number; end: number };
  spec: { argv?: string[]; shell?: string | null; port?: number | null };
}

export interface Template {
  id: string;
  name: string;
  size: number;
  sandboxes: number;
  created_at: string;
  memory?: boolean;
  digest: string;
  tags?: { tag: string }[];
}

export interface Pool {
  template: string;
  engine: string;
  min: number;
  max: number;
  ready: number;
  coming: number;
  taken: number;
  missed: number;
}

export interface Event {
  id: number;
  at: string;
  kind: string;
  /** Absent, with sandbox and state, in events about the host. */
  name?: string;
  sandbox?: string;
  state?: State;
  reason?: string | null;
  receipt?: Receipt | null;
}

export interface Check {
  what: string;
  ok: boolean;
  required: boolean;
  detail: string;
}

export interface Doctor {
  version: string;
  kernel: string;
  checks: Check[];
  engines: { engine: string; fit: boolean; proven_ms?: number | null; problem?: string | null; checks: Check[] }[];
}
