import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { logIn } from "../api";
import { Bird } from "../bird";
import type { Problem } from "../types";
import { Trouble } from "../ui";

/** Why the last attempt was refused. */
export const loginProblem = signal<Problem | undefined>(undefined);

export function Login(): JSX.Element {
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    loginProblem.value = await logIn({ token: String(data.get("token") ?? "") });
  };
  return (
    <main class="login">
      <form class="card" onSubmit={(event) => void submit(event)}>
        <Bird />
        <h1>Roost</h1>
        <p>Computers for agents. On the host, <code>roost open</code> prints a link that logs this browser in.</p>
        {loginProblem.value && <Trouble problem={loginProblem.value} />}
        <label class="field">
          <span>Or paste a token</span>
          <input name="token" type="password" placeholder="rst_…" autocomplete="off" required />
        </label>
        <button type="submit" class="main">Log in</button>
      </form>
    </main>
  );
}
