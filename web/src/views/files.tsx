/** Files: browse, look, edit, upload, download. */

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { at, get, post, query, Refused, remove, request } from "../api";
import { ago, bytes } from "../format";
import type { FileStat, Problem, Row } from "../types";
import { ask, Button, confirm, Empty, tell, Trouble, useLoaded } from "../ui";
import { Asleep } from "./sandbox";

/** More is better looked at elsewhere. */
const LARGEST_TEXT = 1 << 20;
const PICTURES = /\.(png|jpe?g|gif|webp|avif|svg)$/i;

/** Where one was, by the sandbox's id. */
const places = new Map<string, string>();

export function Files({ row }: { row: Row }): JSX.Element {
  const [entered, setEntered] = useState(row.state === "active");
  if (!entered && row.state === "suspended") return <Asleep row={row} what="Its files are read by its own hands, so it must be awake." />;
  return <Browser row={row} entered={() => setEntered(true)} />;
}

function Browser({ row, entered }: { row: Row; entered: () => void }): JSX.Element {
  const [path, setPath] = useState(places.get(row.id) ?? "/");
  const [open, setOpen] = useState<FileStat>();
  const [over, setOver] = useState(false);
  const picker = useRef<HTMLInputElement>(null);
  const listing = useLoaded(async () => {
    const list = await get<{ path: string; entries: FileStat[]; error?: Problem }>(at(row.id, `/files/list${query({ path })}`));
    if (list.error) throw new Refused(200, list.error);
    return list;
  }, [row.id, path]);
  useEffect(entered, []);
  const enter = (to: string) => {
    places.set(row.id, to);
    setPath(to);
  };
  const upload = async (files: Iterable<File>) => {
    for (const file of files) {
      await request("PUT", at(row.id, `/files${query({ path: join(path, file.name) })}`), file, "application/octet-stream");
      tell(`${file.name} is there`, bytes(file.size));
    }
    await listing.again();
  };
  const makeFolder = async () => {
    const name = await ask("New folder", "Name", "Make");
    if (!name) return;
    await post(at(row.id, "/files/mkdir"), { path: join(path, name) });
    await listing.again();
  };
  const makeFile = async () => {
    const name = await ask("New file", "Name", "Make");
    if (!name) return;
    const response = await request("PUT", at(row.id, `/files${query({ path: join(path, name) })}`), "", "application/octet-stream");
    setOpen((await response.json()) as FileStat);
    await listing.again();
  };
  const drop = async (file: FileStat) => {
    if (!(await confirm(`Delete ${file.name}?`, file.kind === "folder" ? "Everything in it goes too." : "There is no way back but a checkpoint.", "Delete"))) return;
    await remove(at(row.id, `/files${query({ path: file.path, recursive: file.kind === "folder" })}`));
    if (open?.path === file.path) setOpen(undefined);
    await listing.again();
  };
  const rename = async (file: FileStat) => {
    const name = await ask(`Rename ${file.name}`, "New name or path", "Rename", file.name);
    if (!name || name === file.name) return;
    await post(at(row.id, "/files/move"), { from: file.path, to: name.startsWith("/") ? name : join(path, name) });
    await listing.again();
  };
  const parts = path.split("/").filter(Boolean);
  const entries = [...(listing.value?.entries ?? [])].sort((a, b) => Number(b.kind === "folder") - Number(a.kind === "folder") || a.name.localeCompare(b.name));
  const now = Date.now();
  return (
    <div class={`files ${open ? "reading" : ""}`}>
      <div class={`browser card ${over ? "over" : ""}`}
        onDragOver={(event) => { event.preventDefault(); setOver(true); }}
        onDragLeave={() => setOver(false)}
        onDrop={(event) => { event.preventDefault(); setOver(false); void upload(event.dataTransfer?.files ?? []); }}>
        <div class="bar">
          <nav class="path" aria-label="Path">
            <button class="quiet" onClick={() => enter("/")}>/</button>
            {parts.map((part, index) => (
              <button key={index} class="quiet" onClick={() => enter(`/${parts.slice(0, index + 1).join("/")}`)}>{part}{index < parts.length - 1 ? " /" : ""}</button>
            ))}
          </nav>
          <div class="actions">
            <Button act={makeFile}>New file</Button>
            <Button act={makeFolder}>New folder</Button>
            <Button onClick={() => picker.current?.click()}>Upload</Button>
            <input ref={picker} type="file" multiple hidden aria-label="Files to upload" onChange={(event) => void upload(event.currentTarget.files ?? [])} />
          </div>
        </div>
        {listing.problem && <Trouble problem={listing.problem} again={() => void listing.again()} />}
        {listing.value && entries.length === 0 && <Empty title="Empty"><p>Drop files here.</p></Empty>}
        <ul class="entries">
          {entries.map((file) => (
            <li key={file.path} class={file.path === open?.path ? "picked" : ""}>
              <button class="entry" onClick={() => (file.kind === "folder" ? enter(file.path) : setOpen(file))}>
                <span class={`glyph ${file.kind}`} aria-hidden="true" />
                <span class="name">{file.name}{file.kind === "folder" ? "/" : ""}{file.target ? <small> → {file.target}</small> : ""}</span>
                <small>{file.kind === "file" ? bytes(file.size) : ""}</small>
                <small class="wide">{ago(file.modified_at, now)}</small>
              </button>
              <span class="tools">
                {file.kind === "file" && <a class="quiet button" href={at(row.id, `/files${query({ path: file.path })}`)} download={file.name} aria-label={`Download ${file.name}`}>↓</a>}
                <Button tone="quiet" act={() => rename(file)} aria-label={`Rename ${file.name}`}>✎</Button>
                <Button tone="quiet" act={() => drop(file)} aria-label={`Delete ${file.name}`}>×</Button>
              </span>
            </li>
          ))}
        </ul>
      </div>
      {open && <Reader key={open.path} row={row} file={open} close={() => setOpen(undefined)} saved={() => void listing.again()} />}
    </div>
  );
}

function join(folder: string, name: string): string {
  return `${folder === "/" ? "" : folder}/${name}`;
}

type Content = { kind: "text"; text: string } | { kind: "picture"; url: string } | { kind: "other"; why: string };

async function read(row: Row, file: FileStat): Promise<Content> {
  const where = at(row.id, `/files${query({ path: file.path })}`);
  if (file.size > LARGEST_TEXT * 8) return { kind: "other", why: "It is too large to be shown here." };
  const response = await request("GET", where);
  if (PICTURES.test(file.name)) {
    const type = /svg$/i.test(file.name) ? "image/svg+xml" : "";
    return { kind: "picture", url: URL.createObjectURL(new Blob([await response.arrayBuffer()], { type })) };
  }
  const content = await response.arrayBuffer();
  if (content.byteLength > LARGEST_TEXT) return { kind: "other", why: "It is too large to be edited here." };
  try {
    return { kind: "text", text: new TextDecoder("utf-8", { fatal: true }).decode(content) };
  } catch {
    return { kind: "other", why: "It is not text." };
  }
}

function Reader({ row, file, close, saved }: { row: Row; file: FileStat; close: () => void; saved: () => void }): JSX.Element {
  const content = useLoaded(() => read(row, file), [file.path]);
  const [text, setText] = useState<string>();
  const loaded = content.value;
  useEffect(() => () => void (loaded?.kind === "picture" && URL.revokeObjectURL(loaded.url)), [loaded]);
  const changed = loaded?.kind === "text" && text !== undefined && text !== loaded.text;
  const save = async () => {
    if (text === undefined) return;
    await request("PUT", at(row.id, `/files${query({ path: file.path })}`), text, "application/octet-stream");
    tell(`${file.name} is saved`);
    await content.again();
    saved();
  };
  const leave = async () => {
    if (!changed || (await confirm(`Leave ${file.name}?`, "What you wrote is not saved.", "Leave"))) close();
  };
  return (
    <div class="reader card">
      <div class="bar">
        <h2 title={file.path}>{file.name}{changed && <span class="tag warn">changed</span>}</h2>
        <div class="actions">
          <a class="button" href={at(row.id, `/files${query({ path: file.path })}`)} download={file.name}>Download</a>
          {loaded?.kind === "text" && <Button tone="main" disabled={!changed} act={save} title="Ctrl+S">Save</Button>}
          <Button tone="quiet" act={leave} aria-label="Close the file">×</Button>
        </div>
      </div>
      {content.problem && <Trouble problem={content.problem} again={() => void content.again()} />}
      {loaded?.kind === "text" && (
        <textarea aria-label={`Content of ${file.name}`} spellcheck={false} value={text ?? loaded.text}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key.toLowerCase() === "s" && (event.ctrlKey || event.metaKey)) {
              event.preventDefault();
              void save();
            }
          }} />
      )}
      {loaded?.kind === "picture" && <div class="picture"><img src={loaded.url} alt={file.name} /></div>}
      {loaded?.kind === "other" && <Empty title={loaded.why} />}
    </div>
  );
}
