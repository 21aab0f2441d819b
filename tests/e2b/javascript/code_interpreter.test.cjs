// The code interpreter's package.
'use strict'

const assert = require('node:assert/strict')
const { test } = require('node:test')
const { Sandbox } = require('@e2b/code-interpreter')

async function create(t) {
  const sandbox = await Sandbox.create({ timeoutMs: 600_000, envs: { GREETING: 'hello' } })
  t.after(() => sandbox.kill())
  return sandbox
}

test('variables stay, errors are told, pictures come', async (t) => {
  const sandbox = await create(t)
  await sandbox.runCode('x = 1')
  const execution = await sandbox.runCode('x += 1; print("out"); x')
  assert.deepEqual([execution.text, execution.logs.stdout.join('')], ['2', 'out\n'])
  const failed = await sandbox.runCode('1/0')
  assert.equal(failed.error.name, 'ZeroDivisionError')
  assert.ok(failed.error.traceback.includes('ZeroDivisionError'))
  const drawn = await sandbox.runCode('import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()')
  assert.equal(Buffer.from(drawn.results[0].png, 'base64').subarray(1, 4).toString(), 'PNG')
  const env = await sandbox.runCode('import os; (os.environ["GREETING"], os.environ["ONCE"])', { envs: { ONCE: '1' } })
  assert.equal(env.text, "('hello', '1')")
})

test('contexts are apart', async (t) => {
  const sandbox = await create(t)
  const context = await sandbox.createCodeContext({ cwd: '/tmp' })
  await sandbox.runCode('y = 5', { context })
  assert.equal((await sandbox.runCode('import os; (y, os.getcwd())', { context })).text, "(5, '/tmp')")
  assert.equal((await sandbox.runCode('y')).error.name, 'NameError')
  assert.equal((await sandbox.listCodeContexts()).length, 2)
  await sandbox.restartCodeContext(context)
  assert.equal((await sandbox.runCode('y', { context })).error.name, 'NameError')
  await sandbox.removeCodeContext(context)
  assert.equal((await sandbox.listCodeContexts()).length, 1)
})
