/** A terminal in the sandbox. The shell goes on when one leaves, and is found again. */

import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { at, socket } from "../api";
import { withSheets } from "../sheets";
import { dark } from "../theme";
import type { Row } from "../types";
import { Button } from "../ui";
import { Asleep } from "./sandbox";

const SHELL = "command -v bash >/dev/null 2>&1 && exec bash -l; exec sh -l";
/** Shells that were left, by the sandbox's id. */
const left = new Map<string, string>();
const encoder = new TextEncoder();

const COLOURS = {
  light: { background: "#fbfaf7", foreground: "#24302c", cursor: "#1f6f5c", cursorAccent: "#fbfaf7", selectionBackground: "#cfe3da", black: "#24302c", red: "#b3392f", green: "#2e7d4f", yellow: "#8a6410", blue: "#2c62a8", magenta: "#8b3d8f", cyan: "#1b7480", white: "#6a756f", brightBlack: "#5d6963", brightRed: "#c9473b", brightGreen: "#35905b", brightYellow: "#99700f", brightBlue: "#3672bf", brightMagenta: "#9c4aa0", brightCyan: "#1f8592", brightWhite: "#24302c" },
  dark: { background: "#0f1614", foreground: "#d9e3de", cursor: "#6fd3b4", cursorAccent: "#0f1614", selectionBackground: "#27483e", black: "#1c2724", red: "#ef8378", green: "#7fd39a", yellow: "#e3c06d", blue: "#84b3f0", magenta: "#d39bdb", cyan: "#74cbd6", white: "#c4d0ca", brightBlack: "#71817a", brightRed: "#ff9d92", brightGreen: "#97e6b1", brightYellow: "#f5d58a", brightBlue: "#9fc5fa", brightMagenta: "#e5b3ec", brightCyan: "#8fdde7", brightWhite: "#f2f7f4" },
};

export function TerminalView({ row }: { row: Row }): JSX.Element {
  const [entered, setEntered] = useState(row.state === "active");
  if (!entered && row.state === "suspended") return <Asleep row={row} what="A terminal needs it awake." />;
  return <Screen id={row.id} key={row.id} name={row.name} entered={() => setEntered(true)} />;
}

function Screen({ id, name, entered }: { id: string; name: string; entered: () => void }): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const terminal = useRef<Terminal | undefined>(undefined);
  const [round, setRound] = useState(0);
  const [ended, setEnded] = useState<string>();

  useEffect(() => {
    const element = place.current;
    if (!element) return;
    entered();
    const view = new Terminal({
      fontFamily: "ui-monospace, 'SF Mono', 'JetBrains Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace",
      fontSize: 13, lineHeight: 1.25, cursorBlink: true, scrollback: 5000, screenReaderMode: true,
      theme: dark.value ? COLOURS.dark : COLOURS.light,
    });
    const fit = new FitAddon();
    view.loadAddon(fit);
    withSheets(() => view.open(element));
    fit.fit();
    terminal.current = view;
    view.focus();

    const size = () => ({ cols: view.cols, rows: view.rows });
    const again = left.get(id);
    const line = again ? socket(at(id, `/execs/${again}/attach`)) : socket(at(id, "/execs/start"));
    let over = false;
    const say = (message: unknown) => line.readyState === WebSocket.OPEN && line.send(JSON.stringify(message));
    line.onopen = () => {
      if (again) say({ type: "resize", ...size() });
      else say({ shell: SHELL, pty: size(), stdin: true, env: { TERM: "xterm-256color", COLORTERM: "truecolor" } });
    };
    line.onmessage = (message: MessageEvent<string | ArrayBuffer>) => {
      if (typeof message.data !== "string") {
        // One byte for the stream, eight for where it is in it, then what was written.
        view.write(new Uint8Array(message.data, 9));
        return;
      }
      const heard = JSON.parse(message.data) as { type: string; exec?: { id: string; status: { exit_code?: number } }; error?: { message: string } };
      if (heard.type === "started" && heard.exec) left.set(id, heard.exec.id);
      if (heard.type === "exit" || heard.type === "error") {
        over = true;
        left.delete(id);
        setEnded(heard.error?.message ?? `The shell ended with ${heard.exec?.status.exit_code ?? 0}.`);
      }
    };
    line.onclose = () => {
      if (over) return;
      // A shell that is not there any more is no reason to be stuck with it.
      if (again) left.delete(id);
      setEnded("The line broke. What runs inside goes on.");
    };
    const typed = view.onData((text) => {
      const bytes = encoder.encode(text);
      const message = new Uint8Array(bytes.length + 1);
      message.set(bytes, 1);
      if (line.readyState === WebSocket.OPEN) line.send(message);
    });
    const resized = view.onResize(() => say({ type: "resize", ...size() }));
    const observer = new ResizeObserver(() => fit.fit());
    observer.observe(element);
    return () => {
      observer.disconnect();
      typed.dispose();
      resized.dispose();
      line.onclose = null;
      line.close();
      view.dispose();
      terminal.current = undefined;
    };
  }, [id, round]);

  useEffect(() => {
    if (terminal.current) terminal.current.options.theme = dark.value ? COLOURS.dark : COLOURS.light;
  }, [dark.value]);

  return (
    <div class="console">
      <div class="screen" ref={place} role="group" aria-label={`Terminal in ${name}`} />
      {ended && (
        <div class="over" role="status">
          <span>{ended}</span>
          <Button tone="main" onClick={() => { setEnded(undefined); setRound((before) => before + 1); }}>Open it again</Button>
        </div>
      )}
    </div>
  );
}
