"""Asks every part of the workload; prints what must stay as it is and what is wrong, as JSON."""
import hashlib
import json
import os
import subprocess
import sys
import time
import urllib.request

PATIENCE = 60
problems = []


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as answer:
        return answer.read().decode()


def ask(what, question):
    try:
        return question()
    except Exception as error:
        problems.append(f"{what}: {error!r}")
        return ""


def goes_on(what, count):
    """Waits until a count has grown."""
    before, deadline = count(), time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if count() > before:
            return
        time.sleep(0.005)
    problems.append(f"{what} stands still at {before}")


def number_in(path):
    with open(path) as file:
        return int(file.read())


def tree():
    digest = hashlib.sha256()
    for name in sorted(os.listdir("/home/user/w/data")):
        with open(f"/home/user/w/data/{name}", "rb") as file:
            digest.update(name.encode() + file.read())
    return digest.hexdigest()


def tmux():
    """Has the shell in tmux count one further."""
    expected = number_in("/home/user/w/tmux.count") + 1 if os.path.exists("/home/user/w/tmux.count") else 1
    line = 'N=$((N+1)); echo "$V" >/home/user/w/tmux.said; echo $N >/home/user/w/tmux.new; mv /home/user/w/tmux.new /home/user/w/tmux.count'
    subprocess.run(["tmux", "send-keys", "-t", "w", line, "Enter"], check=True, timeout=PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if os.path.exists("/home/user/w/tmux.count") and number_in("/home/user/w/tmux.count") == expected:
            said = open("/home/user/w/tmux.said").read().strip()
            return None if said == "in tmux" else problems.append(f"tmux says {said!r}")
        time.sleep(0.005)
    problems.append(f"tmux did not come to {expected}")


kept = {
    "memory": ask("memory", lambda: get(8000, "/memory")),
    "nameless": ask("nameless file", lambda: get(8000, "/nameless")),
    "node": ask("node", lambda: json.loads(get(8001, "/"))["hash"]),
    "files": ask("files", tree),
}
if (told := ask("watch", lambda: get(8000, "/watched"))) != "told":
    problems.append(f"watch: {told}")
ask("node", lambda: goes_on("node", lambda: json.loads(get(8001, "/"))["count"]))
for kind in ["pipe", "tcp"]:
    ask(kind, lambda: goes_on(kind, lambda: number_in(f"/home/user/w/{kind}.state")))
ask("tmux", tmux)
if "build" in sys.argv:
    ask("build", lambda: goes_on("build", lambda: number_in("/home/user/w/built.state")))
else:
    ask("build", lambda: number_in("/home/user/w/built.state"))
print(json.dumps({"kept": kept, "problems": problems}))
