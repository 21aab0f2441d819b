"""Templates built by the package."""

import pathlib
import tempfile
import unittest

from e2b import BuildException, Sandbox, Template, wait_for_port

import support


class Templates(support.WithSandboxes):
    def test_a_template_is_built_and_used(self):
        with tempfile.TemporaryDirectory() as folder:
            context = pathlib.Path(folder)
            (context / "site").mkdir()
            (context / "site/index.html").write_text("from the template")
            (context / "note.txt").write_text("copied")
            recipe = (
                Template(file_context_path=folder)
                .from_template("base")
                .set_envs({"STAGE": "built"})
                .copy("note.txt", "/opt/note.txt", user="root")
                .copy("site", "/home/user/site")
                .run_cmd("echo $STAGE > ~/stage")
                .run_cmd("echo root > /root/mark", user="root")
                .set_workdir("/home/user/site")
                .run_cmd("pwd > ~/where")
                .set_start_cmd("python3 -m http.server 8000", wait_for_port(8000))
            )
            logs = []
            built = Template.build(recipe, "suite-template", on_build_logs=logs.append)
        self.assertTrue(built.template_id and built.build_id)
        self.assertTrue(logs)
        self.assertTrue(Template.exists("suite-template"))
        self.assertFalse(Template.exists("no-such-template"))
        sandbox = self.create("suite-template")
        run = sandbox.commands.run
        self.assertEqual(run("cat /opt/note.txt; echo; cat ~/stage ~/where; echo $STAGE").stdout,
                         "copied\nbuilt\n/home/user/site\nbuilt\n")
        self.assertEqual(run("cat /root/mark", user="root").stdout, "root\n")
        self.assertEqual(run("curl -s localhost:8000/").stdout, "from the template")

    def test_a_step_that_fails_says_so(self):
        recipe = Template().from_template("base").run_cmd("echo on the way; exit 9")
        with self.assertRaises(BuildException) as caught:
            Template.build(recipe, "suite-broken")
        self.assertIn("9", str(caught.exception))
        with self.assertRaises(Exception):
            Sandbox.create("suite-broken")

    def test_tags(self):
        recipe = Template().from_template("base").run_cmd("true")
        Template.build(recipe, "suite-tagged:v1")
        Template.assign_tags("suite-tagged:v1", ["stable", "next"])
        self.assertEqual({tag.tag for tag in Template.get_tags("suite-tagged")} & {"v1", "stable", "next"},
                         {"v1", "stable", "next"})
        self.assertEqual(self.create("suite-tagged:stable").commands.run("echo up").stdout, "up\n")
        Template.remove_tags("suite-tagged", ["next"])
        self.assertNotIn("next", {tag.tag for tag in Template.get_tags("suite-tagged")})


if __name__ == "__main__":
    unittest.main()
