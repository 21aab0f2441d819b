// The page as somebody uses it, against a real daemon, without one reload: see tests/e2e/tests/page.rs.

import { accessible, check, eventually, loginLink, roost, shot, withBrowser, witness } from "./browser.mjs";

const inside = (...words) => roost("exec", "web", "--", ...words);

await withBrowser(async (context) => {
  const link = loginLink();
  const host = new URL(link).host;
  const page = context.pages()[0] ?? (await context.newPage());
  const seen = witness(page, host);
  const step = async (what, work) => {
    const began = Date.now();
    try {
      await work();
    } catch (error) {
      await shot(page, "failed").catch(() => {});
      throw new Error(`${what}: ${error.message}\nthe page: ${await page.locator("body").innerText().catch(() => "?")}\nits errors: ${seen.errors.join("\n")}`);
    }
    console.log(`${what}: ${Date.now() - began} ms`);
  };
  const tab = (name) => page.getByRole("navigation", { name: "Parts of web" }).getByRole("link", { name, exact: true }).click();
  const state = (text) => page.locator(".sandbox .sub .state", { hasText: text }).waitFor();

  await step("a link logs in, and leaves no trace in the address", async () => {
    await page.goto(link);
    await page.getByRole("heading", { name: "Sandboxes" }).waitFor();
    check(!page.url().includes("login"), "the code is gone from the address");
    const cookies = await context.cookies();
    const cookie = cookies.find((one) => one.name === "roost_session");
    check(cookie?.httpOnly && cookie.sameSite === "Strict", "the cookie is for the daemon alone");
    await page.evaluate(() => (globalThis.mark = "never reloaded"));
    await page.getByText("Nothing here yet").waitFor();
    await accessible(page, "an empty list");
  });

  await step("a sandbox is created", async () => {
    await page.keyboard.press("c");
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Name").fill("web");
    await accessible(page, "the dialog for a new sandbox");
    await shot(page, "create");
    await dialog.getByRole("button", { name: "Create" }).click();
    await page.getByRole("heading", { name: "web", exact: true }).waitFor();
    await state("awake");
  });

  await step("the terminal takes what is typed", async () => {
    await tab("Terminal");
    const screen = page.locator(".xterm-rows");
    await screen.waitFor();
    await page.locator(".xterm-helper-textarea").focus();
    await eventually("there is a prompt", async () => /[$#~]/.test(await screen.innerText()));
    await page.keyboard.type("mkdir -p /srv && cd /srv && echo first > index.html && httpd -p 3000 -h /srv\n");
    await page.keyboard.type("echo roo''st-$((40 + 2)); ls --color=always /\n");
    await eventually("the answer is on the screen", async () => (await screen.innerText()).includes("roost-42"));
    await accessible(page, "the terminal");
    await shot(page, "terminal");
    await page.locator(".xterm-helper-textarea").focus();
    await page.keyboard.type("exit\n");
    await page.getByText("The shell ended with 0.").waitFor();
  });

  await step("a file is edited", async () => {
    await tab("Files");
    await page.getByRole("button", { name: "srv/" }).click();
    await page.getByRole("button", { name: /^index\.html/ }).click();
    const text = page.getByLabel("Content of index.html");
    await text.waitFor();
    check((await text.inputValue()) === "first\n", "what was written in the terminal is shown");
    await text.fill("written in the browser\n");
    await text.press("Control+s");
    await page.getByText("index.html is saved").waitFor();
    check(inside("cat", "/srv/index.html") === "written in the browser", "it is in the sandbox");
    await accessible(page, "files");
    await shot(page, "files");
    await page.getByRole("button", { name: "Close the file" }).click();
    await page.setInputFiles("input[type=file]", { name: "up.txt", mimeType: "text/plain", buffer: Buffer.from("uploaded") });
    await page.getByRole("button", { name: /^up\.txt/ }).waitFor();
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "Download up.txt" }).click()]);
    check((await (await import("node:fs/promises")).readFile(await download.path(), "utf8")) === "uploaded", "what went up comes down");
  });

  await step("a command runs and its output is shown", async () => {
    await tab("Processes");
    await page.getByLabel("Run a command").fill("echo to-the-output; echo to-the-errors >&2; exit 3");
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.getByLabel("Output").getByText("to-the-output").waitFor();
    await page.getByLabel("Errors").getByText("to-the-errors").waitFor();
    await page.getByText("exit 3", { exact: true }).waitFor();
    await accessible(page, "processes");
    await shot(page, "processes");
  });

  await step("what runs is shown as it comes and goes, and can be ended", async () => {
    const process = page.getByRole("row", { name: /sleep 4321$|sleep 4321 / });
    roost("exec", "-d", "web", "--", "sleep", "4321");
    await process.waitFor();
    await eventually("its share of a processor is known", async () => /\d %/.test(await process.innerText()));
    await accessible(page, "what runs");
    await shot(page, "running");
    await process.getByRole("button", { name: /^End process/ }).click();
    await process.waitFor({ state: "detached" });
  });

  await step("a service is kept up and its log followed", async () => {
    await tab("Services");
    await page.getByLabel("Service", { exact: true }).fill("beat");
    await page.getByLabel("Command").fill("n=0; while :; do n=$((n+1)); echo beat-$n; sleep 1; done");
    await page.getByRole("button", { name: "Add" }).click();
    const service = page.getByRole("button", { name: /beat/ });
    await page.locator(".tag", { hasText: "running" }).waitFor();
    await service.first().click();
    await page.getByLabel("Log").getByText("beat-2").waitFor();
    await accessible(page, "services");
    await shot(page, "services");
    await page.getByRole("button", { name: "Remove", exact: true }).last().click();
    await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
    await page.getByText("No services").waitFor();
  });

  await step("a port has a way to it", async () => {
    await tab("Ports");
    await page.getByRole("heading", { name: /^3000/ }).waitFor();
    await page.getByRole("button", { name: "Make a link" }).click();
    const way = page.getByRole("link", { name: "Open it in a new tab" });
    await way.waitFor();
    const [popup] = await Promise.all([context.waitForEvent("page"), way.click()]);
    await popup.getByText("written in the browser").waitFor();
    await popup.close();
    await accessible(page, "ports");
    await shot(page, "ports");
  });

  await step("a moment is kept, forked, and gone back to", async () => {
    await tab("Moments");
    await page.getByRole("button", { name: "Keep this moment" }).click();
    await page.getByRole("dialog").getByLabel(/What it is/).fill("before");
    await page.getByRole("dialog").getByRole("button", { name: "Keep" }).click();
    const node = page.getByRole("button", { name: /^before/ });
    await node.waitFor();
    inside("sh", "-c", "echo broken > /srv/index.html");
    await node.click();
    await page.getByRole("button", { name: "Fork", exact: true }).click();
    await page.getByRole("dialog").getByLabel(/Name of the new sandbox/).fill("web-fork");
    await page.getByRole("dialog").getByRole("button", { name: "Fork" }).click();
    await page.locator(".node.fork", { hasText: "web-fork" }).waitFor();
    check(roost("exec", "web-fork", "--", "cat", "/srv/index.html") === "written in the browser", "the fork has that moment");
    await node.click();
    await page.getByRole("button", { name: "Restore" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Restore" }).click();
    await page.getByText("web is back there").waitFor();
    check(inside("cat", "/srv/index.html") === "written in the browser", "it is as it was then");
    await page.getByRole("button", { name: "Keep this moment" }).click();
    await page.getByRole("dialog").getByLabel(/What it is/).fill("after");
    await page.getByRole("dialog").getByRole("button", { name: "Keep" }).click();
    await page.getByRole("button", { name: /^after/ }).waitFor();
    await page.getByLabel("Compare with").selectOption({ index: 1 });
    await page.getByRole("heading", { name: /^From/ }).waitFor();
    await accessible(page, "moments");
    await shot(page, "moments");
  });

  await step("it falls asleep, and a request wakes it", async () => {
    await tab("Overview");
    await page.getByRole("button", { name: "Change when it sleeps" }).click();
    await page.getByRole("dialog").getByLabel(/After this long/).fill("1s");
    await page.getByRole("dialog").getByRole("button", { name: "Set" }).click();
    await state("asleep, in memory");
    await shot(page, "asleep");
    roost("set", "web", "--idle-after", "10m");
    const way = new URL(roost("open", "web", "3000", "--link", "1h", "-q"));
    const answer = await page.request.get(`http://${host}${JSON.parse(roost("open", "web", "3000", "--link", "1h", "--json")).path}`);
    check(way.host.startsWith("3000-web.") && (await answer.text()).includes("written in the browser"), "the request is answered");
    await state("awake");
    await tab("Timeline");
    await page.locator(".ledger .woke", { hasText: "port 3000" }).waitFor();
    await page.locator(".ledger .slept").first().waitFor();
    await accessible(page, "the timeline");
    await shot(page, "timeline");
    await tab("Overview");
    await page.getByText("Why it is awake").waitFor();
    await accessible(page, "the overview");
    await shot(page, "overview");
    for (const time of ["2 hours", "24 hours", "7 days"]) {
      await page.getByRole("button", { name: time, exact: true }).click();
      await page.getByRole("img", { name: /^Awake over the last/ }).waitFor();
      await page.getByRole("img", { name: /^Processor over the last .*: now .*at most (?!0 %)/ }).waitFor();
    }
    await accessible(page, "the overview of days");
    await shot(page, "overview-days");
    await page.getByRole("button", { name: "2 minutes", exact: true }).click();
  });

  await step("the other places", async () => {
    for (const [key, name] of [["e", "Events"], ["t", "Templates"], ["p", "Pools"], ["d", "Doctor"]]) {
      await page.keyboard.press("g");
      await page.keyboard.press(key);
      await page.getByRole("heading", { name, exact: true }).waitFor();
      await page.locator(".page .card, .page .events li").first().waitFor();
      await accessible(page, name);
      await shot(page, name.toLowerCase());
    }
  });

  await step("the keyboard finds its way", async () => {
    await page.keyboard.press("?");
    await page.getByRole("dialog").getByRole("heading", { name: "Keys" }).waitFor();
    await accessible(page, "the keys");
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.keyboard.press("/");
    await page.locator(".find:focus").waitFor();
    await page.keyboard.type("fork");
    await eventually("only the fork is listed", async () => (await page.locator(".rows li").count()) === 1);
    await shot(page, "list");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "web-fork" }).waitFor();
    await page.keyboard.press("Escape");
    await page.getByPlaceholder(/^Find by name/).fill("");
  });

  await step("it is as good in the dark, and on a phone", async () => {
    await page.keyboard.press("Escape");
    await page.keyboard.press("t");
    await accessible(page, "the list in the dark");
    await shot(page, "list-dark");
    await page.setViewportSize({ width: 390, height: 844 });
    const parts = [["list", "#/"], ["overview", "#/s/web"], ["terminal", "#/s/web/terminal"], ["files", "#/s/web/files"], ["processes", "#/s/web/processes"], ["moments", "#/s/web/moments"], ["timeline", "#/s/web/timeline"]];
    for (const [name, where] of parts) {
      await page.evaluate((hash) => (location.hash = hash), where);
      await page.locator("main h1").first().waitFor();
      if (name === "terminal") await page.locator(".xterm-rows").waitFor();
      if (name === "processes") await page.getByRole("row", { name: /roost-guest/ }).waitFor();
      if (name === "moments") await page.locator(".node.fork").waitFor();
      if (name === "timeline") await page.locator(".ledger li").first().waitFor();
      if (name === "overview") await page.locator(".facts dd").first().waitFor();
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      check(wide <= 0, `${name} fits a phone, not ${wide} pixels more`);
      await accessible(page, `${name} on a phone`);
      await shot(page, `phone-${name}`);
    }
    await page.keyboard.press("t");
    await page.setViewportSize({ width: 1280, height: 800 });
  });

  await step("nothing was reloaded, nothing failed, nobody else was asked", async () => {
    check((await page.evaluate(() => globalThis.mark)) === "never reloaded", "the page was never reloaded");
    check(seen.errors.length === 0, `no errors in the console:\n${seen.errors.join("\n")}`);
    check(seen.hosts.size === 0, `no other host was asked: ${[...seen.hosts].join(" ")}`);
  });

  await step("what is removed is gone, and logging out is for good", async () => {
    await page.evaluate(() => (location.hash = "#/s/web-fork"));
    await page.getByRole("button", { name: "Remove", exact: true }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
    await page.getByRole("heading", { name: "Sandboxes" }).waitFor();
    await eventually("the list has one row", async () => (await page.locator(".rows li").count()) === 1);
    const cookie = (await context.cookies()).find((one) => one.name === "roost_session");
    await page.getByRole("button", { name: "Log out" }).click();
    await page.getByLabel("Or paste a token").waitFor();
    await accessible(page, "the login");
    await shot(page, "login");
    const answer = await page.request.get(`http://${host}/v1/sandboxes`, { headers: { cookie: `roost_session=${cookie.value}` } });
    check(answer.status() === 401, "the cookie is worth nothing any more");
  });

  await step("the same link is refused the second time, and a token lets in too", async () => {
    await page.goto(link);
    await page.getByRole("alert").getByText("this link was used").waitFor();
    await shot(page, "refused");
    const token = JSON.parse(roost("token", "new", "browser", "--json")).secret;
    await page.getByLabel("Or paste a token").fill(token);
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByRole("heading", { name: "Sandboxes" }).waitFor();
  });
});
