"""What a kernel says, in the words of the code interpreter's wire: one JSON object per line.

Pure: messages of the Jupyter protocol go in as dictionaries, events come out as dictionaries.
"""

import json

# Formats with a field of their own; whatever else a kernel offers goes into `extra`.
FIELDS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
}

KEEPALIVE = {"type": "keepalive"}


def line(event):
    """An event as it goes over the wire."""
    return json.dumps(event, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"


def event_of(message, timestamp):
    """The event that a message on a kernel's output channel stands for, or None."""
    kind, content = message["header"]["msg_type"], message["content"]
    if kind == "stream":
        stream = "stderr" if content.get("name") == "stderr" else "stdout"
        return {"type": stream, "text": content.get("text", ""), "timestamp": timestamp}
    if kind == "execute_result":
        return result(content["data"], is_main_result=True)
    if kind in ("display_data", "update_display_data"):
        return result(content["data"], is_main_result=False)
    if kind == "error":
        return error(content.get("ename", ""), content.get("evalue", ""), "\n".join(content.get("traceback", [])))
    if kind == "execute_input":
        return {"type": "number_of_executions", "execution_count": content["execution_count"]}
    return None


def result(data, is_main_result):
    """A value or a picture, in all the formats that the kernel has for it."""
    event = {"type": "result", "is_main_result": is_main_result}
    extra = {}
    for mime, value in data.items():
        if mime in FIELDS:
            event[FIELDS[mime]] = value
        else:
            extra[mime] = value
    if "text" in event:
        event["text"] = plain(event["text"])
    if extra:
        event["extra"] = extra
    return event


def plain(text):
    """The text of a value as clients of the wire know it: a string without its quotes, a figure without its brackets."""
    quoted = len(text) >= 2 and text.startswith("'") and text.endswith("'")
    return text[1:-1] if quoted or text.startswith("<Figure size") else text


def error(name, value, traceback):
    """An exception that nobody caught, or an end of the kernel's."""
    return {"type": "error", "name": name, "value": value, "traceback": traceback}


def is_idle(message):
    """Whether the kernel is through with what was asked of it."""
    return message["header"]["msg_type"] == "status" and message["content"].get("execution_state") == "idle"
