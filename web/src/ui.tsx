/** The parts that every view is made of. */

import { signal } from "@preact/signals";
import type { ButtonHTMLAttributes, ComponentChildren, JSX } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { Refused } from "./api";
import type { Level, Problem, State } from "./types";

interface Note {
  id: number;
  tone: "good" | "bad";
  text: string;
  hint?: string | undefined;
}

export const notes = signal<Note[]>([]);
let lastNote = 0;

export function tell(text: string, hint?: string): void {
  note("good", text, hint);
}

export function problemOf(error: unknown): Problem {
  return error instanceof Refused ? error.problem : { code: "internal", message: error instanceof Error ? error.message : String(error) };
}

export function complain(error: unknown): void {
  const problem = problemOf(error);
  note("bad", problem.message, problem.hint ?? undefined);
}

function note(tone: Note["tone"], text: string, hint?: string): void {
  const id = ++lastNote;
  notes.value = [...notes.value.slice(-1), { id, tone, text, hint }];
  setTimeout(() => dismiss(id), tone === "good" ? 4000 : 12_000);
}

function dismiss(id: number): void {
  notes.value = notes.value.filter((one) => one.id !== id);
}

export function Notes(): JSX.Element {
  return (
    <div class="notes" aria-live="polite">
      {notes.value.map((one) => (
        <div key={one.id} class={`note ${one.tone}`} role={one.tone === "bad" ? "alert" : "status"}>
          <div>
            <p>{one.text}</p>
            {one.hint && <p class="hint">{one.hint}</p>}
          </div>
          <button class="quiet" aria-label="Dismiss" onClick={() => dismiss(one.id)}>×</button>
        </div>
      ))}
    </div>
  );
}

type ButtonProps = ButtonHTMLAttributes<HTMLButtonElement> & { act?: () => Promise<unknown> | void; tone?: "main" | "danger" | "quiet" | "plain" };

/** A button that is busy while what it does is under way, and tells what went wrong. */
export function Button({ act, tone = "plain", children, disabled, ...rest }: ButtonProps): JSX.Element {
  const [busy, setBusy] = useState(false);
  const click = async () => {
    if (!act || busy) return;
    setBusy(true);
    try {
      await act();
    } catch (error) {
      complain(error);
    } finally {
      setBusy(false);
    }
  };
  return (
    <button type="button" class={tone} disabled={disabled || busy} aria-busy={busy} {...rest} {...(act ? { onClick: () => void click() } : {})}>
      {children}
    </button>
  );
}

/** A dialog over the page; Escape closes it. */
export function Dialog({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }): JSX.Element {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = element.current;
    if (dialog && !dialog.open) dialog.showModal();
  }, []);
  return (
    <dialog ref={element} aria-labelledby={id} onClose={close} onClick={(event) => event.target === element.current && close()}>
      <div class="sheet">
        <header>
          <h2 id={id}>{title}</h2>
          <button type="button" class="quiet" aria-label="Close" onClick={close}>×</button>
        </header>
        {children}
      </div>
    </dialog>
  );
}

interface Question {
  title: string;
  text: string;
  yes: string;
  answer: (yes: boolean) => void;
}

const question = signal<Question | undefined>(undefined);

/** Asks before something is lost. */
export function confirm(title: string, text: string, yes: string): Promise<boolean> {
  return new Promise((resolve) => {
    question.value = {
      title, text, yes,
      answer: (answer) => {
        question.value = undefined;
        resolve(answer);
      },
    };
  });
}

export function Confirmation(): JSX.Element | null {
  const asked = question.value;
  if (!asked) return null;
  return (
    <Dialog title={asked.title} close={() => asked.answer(false)}>
      <p>{asked.text}</p>
      <footer>
        <Button onClick={() => asked.answer(false)}>Cancel</Button>
        <Button tone="danger" onClick={() => asked.answer(true)} autofocus>{asked.yes}</Button>
      </footer>
    </Dialog>
  );
}

/** Asks for one line of text; nothing if one would rather not. */
const prompted = signal<{ title: string; label: string; value: string; yes: string; answer: (text?: string) => void } | undefined>(undefined);

export function ask(title: string, label: string, yes: string, value = ""): Promise<string | undefined> {
  return new Promise((resolve) => {
    prompted.value = {
      title, label, yes, value,
      answer: (text) => {
        prompted.value = undefined;
        resolve(text);
      },
    };
  });
}

export function Prompt(): JSX.Element | null {
  const asked = prompted.value;
  if (!asked) return null;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    asked.answer(String(data.get("text") ?? ""));
  };
  return (
    <Dialog title={asked.title} close={() => asked.answer(undefined)}>
      <form onSubmit={submit}>
        <label class="field">
          <span>{asked.label}</span>
          <input name="text" defaultValue={asked.value} autofocus autocomplete="off" />
        </label>
        <footer>
          <Button onClick={() => asked.answer(undefined)}>Cancel</Button>
          <button type="submit" class="main">{asked.yes}</button>
        </footer>
      </form>
    </Dialog>
  );
}

const STATE_WORDS: Record<State, string> = {
  creating: "being made", active: "awake", suspending: "falling asleep", suspended: "asleep", resuming: "waking", terminated: "gone",
};
const LEVEL_WORDS: Record<Level, string> = { ram: "in memory", disk: "on disk", files: "files only" };

export function stateText(state: State, level?: Level | null): string {
  return state === "suspended" && level ? `asleep, ${LEVEL_WORDS[level]}` : STATE_WORDS[state];
}

export function StateMark({ state, level }: { state: State; level?: Level | null | undefined }): JSX.Element {
  return (
    <span class={`state ${state} ${level ?? ""}`}>
      <i aria-hidden="true" />
      {stateText(state, level)}
    </span>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <div class="empty">
      <h3>{title}</h3>
      {children}
    </div>
  );
}

export function Trouble({ problem, again }: { problem: Problem; again?: () => void }): JSX.Element {
  return (
    <div class="trouble" role="alert">
      <p>{problem.message}</p>
      {problem.hint && <p class="hint">{problem.hint}</p>}
      {again && <Button onClick={again}>Try again</Button>}
    </div>
  );
}

/** Something read from the daemon: it is shown again when `when` changes, and stays to be seen meanwhile. */
export function useLoaded<T>(load: () => Promise<T>, when: unknown[]): { value: T | undefined; problem: Problem | undefined; again: () => Promise<void> } {
  const [value, setValue] = useState<T>();
  const [problem, setProblem] = useState<Problem>();
  const latest = useRef(0);
  const again = async () => {
    const turn = ++latest.current;
    try {
      const loaded = await load();
      if (turn !== latest.current) return;
      setValue(() => loaded);
      setProblem(undefined);
    } catch (error) {
      if (turn === latest.current) setProblem(problemOf(error));
    }
  };
  useEffect(() => {
    void again();
    return () => {
      latest.current += 1;
    };
  }, when);
  return { value, problem, again };
}
