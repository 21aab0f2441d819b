// What the scripts share. They see the packages only: where the daemon is stands in E2B_API_URL and E2B_SANDBOX_URL.
'use strict'

const { Sandbox } = require('e2b')

const KILLED = 'The sandbox was killed or reached its end of life'
// What has not come true by then will not.
const PATIENCE_MS = 30_000

async function becomesTrue(what, probe) {
  const deadline = Date.now() + PATIENCE_MS
  for (;;) {
    const found = await probe()
    if (found) return found
    if (Date.now() > deadline) throw new Error(`never came true: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

// A sandbox that is gone when the test `t` ends.
async function create(t, template, opts) {
  const how = { timeoutMs: 600_000, ...opts }
  const sandbox = template ? await Sandbox.create(template, how) : await Sandbox.create(how)
  t.after(() => sandbox.kill())
  return sandbox
}

async function bootId(sandbox) {
  return (await sandbox.commands.run('cat /proc/sys/kernel/random/boot_id')).stdout
}

module.exports = { KILLED, becomesTrue, bootId, create }
