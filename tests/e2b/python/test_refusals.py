"""What is refused, and in which words."""

import unittest

import httpx
from e2b import Sandbox, SandboxException, SandboxNotFoundException
from e2b.exceptions import AuthenticationException, NotFoundException

import support

UNKNOWN = "01zzzzzzzzzzzzzzzzzzzzzzzz"


class Refusals(support.WithSandbox):
    def test_a_wrong_key(self):
        for act in (Sandbox.create, lambda **how: Sandbox.kill(UNKNOWN, **how), lambda **how: Sandbox.list(**how).next_items()):
            with self.assertRaises(AuthenticationException):
                act(api_key="e2b_wrong")

    def test_an_unknown_sandbox(self):
        with self.assertRaises(SandboxNotFoundException):
            Sandbox.connect(UNKNOWN)
        with self.assertRaises(SandboxNotFoundException):
            Sandbox.get_info(UNKNOWN)
        self.assertFalse(Sandbox.kill(UNKNOWN))

    def test_an_unknown_template(self):
        with self.assertRaises((NotFoundException, SandboxException)) as caught:
            Sandbox.create("no-such-template")
        self.assertIn("no-such-template", str(caught.exception))

    def test_a_time_that_is_none(self):
        with self.assertRaises(SandboxException):
            Sandbox.create(timeout=0)

    def test_a_wrong_token_or_none(self):
        url = f"{support.api_url()}/files?path=x"
        headers = {"E2b-Sandbox-Id": self.sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}
        self.assertEqual(httpx.get(url, headers=headers).status_code, 401)
        self.assertEqual(httpx.get(url, headers=headers | {"X-Access-Token": "wrong"}).status_code, 401)
        rpc = f"{support.api_url()}/process.Process/List"
        self.assertEqual(httpx.post(rpc, headers=headers, json={}).status_code, 401)
        token = {"X-Access-Token": self.sandbox._envd_access_token}
        self.assertEqual(httpx.post(rpc, headers=headers | token, json={}).status_code, 200)

    def test_a_port_at_which_nobody_listens(self):
        headers = {"Host": f"9-{self.sandbox.sandbox_id}.{self.sandbox.sandbox_domain}", "Accept": "application/json"}
        answer = httpx.get(support.api_url() + "/", headers=headers, timeout=60)
        self.assertEqual(answer.status_code, 502, answer.text)
        self.assertIn("port is not open", answer.text)

    def test_errors_are_json_with_their_code(self):
        answer = httpx.get(f"{support.api_url()}/sandboxes/{UNKNOWN}", headers={"X-API-KEY": "wrong"})
        self.assertEqual((answer.status_code, answer.json()["code"]), (401, 401))

    def test_inner_paths_of_the_agent_are_not_offered(self):
        headers = {
            "E2b-Sandbox-Id": self.sandbox.sandbox_id,
            "E2b-Sandbox-Port": "49983",
            "X-Access-Token": self.sandbox._envd_access_token,
        }
        for path in ("/init", "/freeze", "/fsfreeze"):
            self.assertGreaterEqual(httpx.post(support.api_url() + path, headers=headers, json={}).status_code, 400)


if __name__ == "__main__":
    unittest.main()
