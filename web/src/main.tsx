import { render } from "preact";
import "@xterm/xterm/css/xterm.css";
import "./style.css";
import { get, logInByAddress, session } from "./api";
import { App } from "./app";
import { follow } from "./route";
import { startTheme } from "./theme";
import type { Session } from "./types";
import { loginProblem } from "./views/login";

startTheme();
const element = document.getElementById("app");
if (element) render(<App />, element);

async function begin(): Promise<void> {
  loginProblem.value = await logInByAddress();
  follow();
  // A link that was opened while the page is there is a change of the fragment and no new page.
  window.addEventListener("hashchange", () => void logInByAddress().then((problem) => problem && (loginProblem.value = problem)));
  session.value ??= await get<Session>("/v1/session").catch(() => ({ logged_in: false }));
}

void begin();
