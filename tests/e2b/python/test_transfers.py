"""A hundred megabytes each way, and nothing lost."""

import hashlib
import tempfile
import unittest

from e2b import InvalidArgumentException

import support

SIZE = 100 * 1024 * 1024


class Transfers(support.WithSandbox):
    def test_a_large_file_goes_up_and_comes_down_whole(self):
        block = bytes(range(251)) * 4177
        with tempfile.TemporaryFile(dir="/var/tmp") as file:
            left, digest = SIZE, hashlib.sha256()
            while left:
                piece = block[:left]
                file.write(piece)
                digest.update(piece)
                left -= len(piece)
            file.seek(0)
            self.sandbox.files.write("large", file)
        self.assertEqual(self.sandbox.files.get_info("large").size, SIZE)
        inside = self.sandbox.commands.run("sha256sum < large").stdout.split()[0]
        self.assertEqual(inside, digest.hexdigest())
        down = hashlib.sha256()
        with self.sandbox.files.read("large", format="stream") as pieces:
            for piece in pieces:
                down.update(piece)
        self.assertEqual(down.hexdigest(), digest.hexdigest())

    def test_a_large_file_that_is_refused_hears_why(self):
        self.sandbox.files.make_dir("folder")
        for _ in range(3):
            with self.assertRaises(InvalidArgumentException):
                self.sandbox.files.write("folder", b"x" * 20_000_000)
        self.sandbox.files.write("small", "x")

    def test_a_reader_that_leaves_early_harms_nobody(self):
        self.sandbox.commands.run("head -c 50000000 /dev/zero > zeros")
        with self.sandbox.files.read("zeros", format="stream") as pieces:
            next(iter(pieces))
        self.assertEqual(self.sandbox.commands.run("echo well").stdout, "well\n")

    def test_much_output_of_a_command(self):
        seen = hashlib.sha256()
        line = "head -c 20000000 /dev/zero | tr '\\0' x"
        self.sandbox.commands.run(line, retain_output=False, on_stdout=lambda text: seen.update(text.encode()))
        self.assertEqual(seen.hexdigest(), hashlib.sha256(b"x" * 20000000).hexdigest())


if __name__ == "__main__":
    unittest.main()
