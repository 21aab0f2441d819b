"""Watches: every event once, none too many."""

import unittest

from e2b import FileNotFoundException, FilesystemEventType, InvalidArgumentException, SandboxException

import support

CREATE, WRITE = FilesystemEventType.CREATE, FilesystemEventType.WRITE
CHMOD, REMOVE, RENAME = FilesystemEventType.CHMOD, FilesystemEventType.REMOVE, FilesystemEventType.RENAME


class Watches(support.WithSandbox):
    def watch(self, path, **how):
        self.sandbox.files.make_dir(path)
        watch = self.sandbox.files.watch_dir(path, **how)
        self.addCleanup(watch.stop)
        return watch

    def events(self, watch, count):
        """So many events, and the next ones belong to a file that is made afterwards: none came too many."""
        seen = []
        support.becomes_true(f"{count} events", lambda: seen.extend(watch.get_new_events()) or len(seen) >= count)
        self.assertEqual(len(seen), count, seen)
        return [(event.type, event.name) for event in seen]

    def ends_there(self, watch, folder):
        self.sandbox.commands.run(f"mkdir {folder}/the-end")
        self.assertEqual(self.events(watch, 1), [(CREATE, "the-end")])

    def test_a_new_file_is_three_events(self):
        watch = self.watch("w1")
        self.sandbox.files.write("w1/new.txt", "hello")
        self.assertEqual(self.events(watch, 3), [(CREATE, "new.txt"), (CHMOD, "new.txt"), (WRITE, "new.txt")])
        self.ends_there(watch, "w1")

    def test_a_rename_is_two(self):
        watch = self.watch("w2")
        self.sandbox.commands.run("mkdir w2/a")
        self.sandbox.files.rename("w2/a", "w2/b")
        self.assertEqual(self.events(watch, 3), [(CREATE, "a"), (RENAME, "a"), (CREATE, "b")])
        self.ends_there(watch, "w2")

    def test_removing_and_modes(self):
        self.sandbox.files.make_dir("w3")
        self.sandbox.files.write("w3/f", "x")
        watch = self.watch("w3")
        self.sandbox.commands.run("chmod 600 w3/f")
        self.sandbox.files.remove("w3/f")
        self.assertEqual(self.events(watch, 2), [(CHMOD, "f"), (REMOVE, "f")])
        self.ends_there(watch, "w3")

    def test_what_is_deeper_counts_only_if_asked_for(self):
        self.sandbox.files.make_dir("w4/deep/er")
        flat, whole = self.watch("w4"), self.watch("w4", recursive=True)
        self.sandbox.files.write("w4/deep/er/new.txt", "hello")
        names = [(kind, "deep/er/new.txt") for kind in (CREATE, CHMOD, WRITE)]
        self.assertEqual(self.events(whole, 3), names)
        self.ends_there(flat, "w4")

    def test_folders_that_come_later_are_watched_too(self):
        watch = self.watch("w5", recursive=True)
        self.sandbox.commands.run("mkdir w5/later")
        self.assertEqual(self.events(watch, 1)[0], (CREATE, "later"))
        support.becomes_true("the new folder is watched", lambda: self.tried(watch))

    def tried(self, watch):
        self.sandbox.commands.run("touch w5/later/f && rm w5/later/f")
        return any(event.name == "later/f" for event in watch.get_new_events())

    def test_entries_come_along_if_asked_for(self):
        watch = self.watch("w6", include_entry=True)
        self.sandbox.files.write("w6/new.txt", "hello")
        seen = []
        support.becomes_true("three events", lambda: seen.extend(watch.get_new_events()) or len(seen) >= 3)
        self.assertEqual(seen[-1].entry.path, "/home/user/w6/new.txt")

    def test_what_cannot_be_watched(self):
        with self.assertRaises(FileNotFoundException):
            self.sandbox.files.watch_dir("nowhere")
        self.sandbox.files.write("plain", "x")
        with self.assertRaises(InvalidArgumentException):
            self.sandbox.files.watch_dir("plain")
        watch = self.sandbox.files.watch_dir(".")
        watch.stop()
        with self.assertRaises(SandboxException):
            watch.get_new_events()


if __name__ == "__main__":
    unittest.main()
