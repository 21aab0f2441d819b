"""Messages of a kernel as events of the wire."""

import json
import unittest

import outputs


def message(kind, **content):
    return {"header": {"msg_type": kind}, "content": content}


class Events(unittest.TestCase):
    def test_streams_are_told_apart(self):
        out = outputs.event_of(message("stream", name="stdout", text="a\n"), 7)
        self.assertEqual(out, {"type": "stdout", "text": "a\n", "timestamp": 7})
        self.assertEqual(outputs.event_of(message("stream", name="stderr", text="b"), 7)["type"], "stderr")

    def test_a_value_is_the_main_result_and_a_picture_is_not(self):
        value = outputs.event_of(message("execute_result", data={"text/plain": "2"}), 0)
        self.assertEqual(value, {"type": "result", "is_main_result": True, "text": "2"})
        picture = {"text/plain": "<Figure size 640x480 with 1 Axes>", "image/png": "iVBO"}
        shown = outputs.event_of(message("display_data", data=picture), 0)
        self.assertEqual((shown["is_main_result"], shown["png"]), (False, "iVBO"))
        self.assertEqual(shown["text"], "Figure size 640x480 with 1 Axes")

    def test_every_format_has_its_field_and_unknown_ones_are_extra(self):
        data = {mime: field for mime, field in outputs.FIELDS.items()} | {"application/x-own": [1]}
        event = outputs.result(data, is_main_result=False)
        for field in outputs.FIELDS.values():
            self.assertEqual(event[field], field)
        self.assertEqual(event["extra"], {"application/x-own": [1]})
        self.assertNotIn("extra", outputs.result({"text/plain": "1"}, True))

    def test_a_string_comes_without_its_quotes(self):
        self.assertEqual(outputs.plain("'hello'"), "hello")
        for text in ["'", "", "it's", "['a']"]:
            self.assertEqual(outputs.plain(text), text)

    def test_an_exception_has_its_traceback_in_one_text(self):
        event = outputs.event_of(message("error", ename="E", evalue="v", traceback=["a", "b"]), 0)
        self.assertEqual(event, {"type": "error", "name": "E", "value": "v", "traceback": "a\nb"})

    def test_the_number_of_an_execution_comes_from_its_input(self):
        event = outputs.event_of(message("execute_input", execution_count=3, code="x"), 0)
        self.assertEqual(event, {"type": "number_of_executions", "execution_count": 3})

    def test_other_messages_are_nothing_to_the_client(self):
        for kind in ["status", "clear_output", "comm_open"]:
            self.assertIsNone(outputs.event_of(message(kind), 0))

    def test_idle_ends_a_run(self):
        self.assertTrue(outputs.is_idle(message("status", execution_state="idle")))
        self.assertFalse(outputs.is_idle(message("status", execution_state="busy")))
        self.assertFalse(outputs.is_idle(message("stream", name="stdout", text="idle")))


class Lines(unittest.TestCase):
    def test_an_event_is_one_line_whatever_is_in_it(self):
        line = outputs.line({"type": "stdout", "text": "a\nb\u2028ü", "timestamp": 1})
        self.assertEqual(line.count(b"\n"), 1)
        self.assertEqual(json.loads(line)["text"], "a\nb\u2028ü")

    def test_text_that_is_no_unicode_does_not_break_the_stream(self):
        self.assertIn(b"?", outputs.line({"type": "stdout", "text": "\udcff"}))


if __name__ == "__main__":
    unittest.main()
