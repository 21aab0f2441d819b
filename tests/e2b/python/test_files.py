"""Files and folders."""

import io
import unittest

import httpx
from e2b import FileNotFoundException, FileType, InvalidArgumentException
from e2b.exceptions import AuthenticationException

import support


class Files(support.WithSandbox):
    @property
    def files(self):
        return self.sandbox.files

    def sh(self, line, **how):
        return self.sandbox.commands.run(line, **how).stdout

    def test_text_bytes_and_streams_go_in_and_out(self):
        written = self.files.write("notes/a.txt", "hällo\n")
        self.assertEqual((written.name, written.path, written.type), ("a.txt", "/home/user/notes/a.txt", FileType.FILE))
        self.assertEqual(self.files.read("/home/user/notes/a.txt"), "hällo\n")
        self.files.write("b.bin", bytes(range(256)))
        self.assertEqual(self.files.read("b.bin", format="bytes"), bytearray(range(256)))
        self.files.write("c.bin", io.BytesIO(b"stream" * 1000))
        self.assertEqual(b"".join(self.files.read("c.bin", format="stream")), b"stream" * 1000)
        self.files.write("d.bin", (b"piece %d\n" % i for i in range(3)))
        self.assertEqual(self.files.read("d.bin"), "piece 0\npiece 1\npiece 2\n")
        self.files.write("empty", "")
        self.assertEqual((self.files.read("empty"), self.files.get_info("empty").size), ("", 0))

    def test_gzip_on_the_way_changes_nothing(self):
        text = "again and again " * 5000
        self.files.write("z.txt", text, gzip=True)
        self.assertEqual(self.files.read("z.txt", gzip=True), text)
        self.assertEqual(self.files.read("z.txt"), text)

    def test_writing_replaces_what_was_there(self):
        self.files.write("r.txt", "a much longer text")
        self.sh("chmod 755 r.txt")
        self.files.write("r.txt", "short")
        self.assertEqual(self.sh("cat r.txt; stat -c ' %a %U' r.txt"), "short 755 user\n")

    def test_many_at_once(self):
        written = self.files.write_files([{"path": f"many/{i}.txt", "data": f"text {i}"} for i in range(20)])
        self.assertEqual([one.path for one in written], [f"/home/user/many/{i}.txt" for i in range(20)])
        self.assertEqual(self.sh("cat many/7.txt; ls many | wc -l"), "text 720\n")
        self.assertEqual(self.files.write_files([]), [])

    def test_a_file_belongs_to_who_wrote_it(self):
        self.files.write("/tmp/mine/a", "")
        self.files.write("/root/theirs", "x", user="root")
        self.assertEqual(self.sh("stat -c '%U %a' /tmp/mine /tmp/mine/a"), "user 755\nuser 644\n")
        self.assertEqual(self.files.read("/root/theirs", user="root"), "x")
        self.assertEqual(self.files.read("~/theirs", user="root"), "x")

    def test_what_is_not_there_is_told(self):
        for act in (self.files.read, self.files.get_info, self.files.list):
            with self.assertRaises(FileNotFoundException):
                act("nowhere")
        with self.assertRaises(FileNotFoundException):
            self.files.rename("nowhere", "somewhere")
        self.assertFalse(self.files.exists("nowhere"))
        self.files.remove("nowhere")

    def test_a_folder_is_no_file_and_a_file_no_folder(self):
        self.files.make_dir("folder")
        with self.assertRaises(InvalidArgumentException):
            self.files.read("folder")
        with self.assertRaises(InvalidArgumentException):
            self.files.write("folder", "x")
        self.files.write("file", "x")
        with self.assertRaises(InvalidArgumentException):
            self.files.list("file")
        with self.assertRaises(InvalidArgumentException):
            self.files.make_dir("file")
        with self.assertRaises(AuthenticationException):
            self.files.read("file", user="nobody-here")

    def test_folders_are_made_once_and_removed_whole(self):
        self.assertTrue(self.files.make_dir("deep/er/and/deeper"))
        self.assertFalse(self.files.make_dir("deep/er"))
        self.files.write("deep/er/a", "x")
        self.files.remove("deep")
        self.assertFalse(self.files.exists("deep"))

    def test_a_list_goes_as_deep_as_it_should(self):
        self.sh("mkdir -p tree/a/b/c && touch tree/f tree/a/g tree/a/b/h && ln -s a tree/link")
        names = lambda depth: sorted(entry.path.removeprefix("/home/user/tree/") for entry in self.files.list("tree", depth=depth))
        self.assertEqual(names(1), ["a", "f", "link"])
        self.assertEqual(names(2), ["a", "a/b", "a/g", "f", "link"])
        self.assertEqual(names(9), ["a", "a/b", "a/b/c", "a/b/h", "a/g", "f", "link"])
        with self.assertRaises(InvalidArgumentException):
            self.files.list("tree", depth=0)

    def test_what_is_known_of_an_entry(self):
        self.sh("mkdir -p info && printf 12345 > info/f && chmod 640 info/f && ln -s f info/l")
        found = self.files.get_info("info/f")
        self.assertEqual((found.name, found.path, found.size), ("f", "/home/user/info/f", 5))
        self.assertEqual((found.type, found.mode, found.permissions), (FileType.FILE, 0o640, "-rw-r-----"))
        self.assertEqual((found.owner, found.group, found.symlink_target), ("user", "user", None))
        now = int(self.sh("date +%s"))
        self.assertLess(abs(now - found.modified_time.timestamp()), 60)
        folder = self.files.get_info("info")
        self.assertEqual((folder.type, folder.permissions), (FileType.DIR, "drwxr-xr-x"))
        link = self.files.get_info("info/l")
        self.assertEqual(link.symlink_target, "/home/user/info/f")

    def test_renaming(self):
        self.files.write("old", "x")
        moved = self.files.rename("old", "new/place/name")
        self.assertEqual((moved.name, moved.path), ("name", "/home/user/new/place/name"))
        self.assertEqual((self.files.exists("old"), self.files.read("new/place/name")), (False, "x"))

    def test_notes_on_files(self):
        written = self.files.write("noted", "x", metadata={"colour": "blue"})
        self.assertEqual(written.metadata, {"colour": "blue"})
        self.assertEqual(self.files.get_info("noted").metadata, {"colour": "blue"})
        self.files.write("noted", "y", metadata={"size": "small"})
        self.assertEqual(self.files.get_info("noted").metadata, {"size": "small"})
        self.files.write("plain", "x")
        self.assertIsNone(self.files.get_info("plain").metadata)


class Links(support.WithSandbox):
    """Signed addresses of files, used by plain HTTP clients."""

    def test_a_signed_address_needs_nothing_else(self):
        self.sandbox.files.write("s.txt", "signed")
        answer = httpx.get(self.sandbox.download_url("s.txt"))
        self.assertEqual((answer.status_code, answer.text), (200, "signed"))
        self.assertEqual(answer.headers["content-length"], "6")
        answer = httpx.get(self.sandbox.download_url("s.txt", use_signature_expiration=60))
        self.assertEqual(answer.text, "signed")
        answer = httpx.post(self.sandbox.upload_url("up.txt"), files={"file": b"came up"})
        self.assertEqual(answer.status_code, 200, answer.text)
        self.assertEqual(self.sandbox.files.read("up.txt"), "came up")

    def test_a_signature_is_for_one_file_and_one_way(self):
        url = self.sandbox.download_url("s.txt")
        self.assertEqual(httpx.get(url.replace("s.txt", "t.txt")).status_code, 401)
        self.assertEqual(httpx.post(url, files={"file": b"x"}).status_code, 401)
        answer = httpx.get(self.sandbox.download_url("s.txt", use_signature_expiration=-60))
        self.assertEqual((answer.status_code, answer.json()["message"]), (401, "signature is already expired"))

    def test_parts_of_a_file(self):
        self.sandbox.files.write("part.txt", "0123456789")
        answer = httpx.get(self.sandbox.download_url("part.txt"), headers={"Range": "bytes=2-4"})
        self.assertEqual((answer.status_code, answer.text), (206, "234"))


if __name__ == "__main__":
    unittest.main()
