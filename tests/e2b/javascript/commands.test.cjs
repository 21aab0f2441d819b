// Commands: their output, input, ends, limits, and coming back to them.
'use strict'

const assert = require('node:assert/strict')
const { test } = require('node:test')
const { AuthenticationError, CommandExitError, InvalidArgumentError, NotFoundError, TimeoutError } = require('e2b')
const { KILLED, becomesTrue, create } = require('./support.cjs')

test('output, codes, users, folders and environment', async (t) => {
  const { commands } = await create(t)
  const result = await commands.run('echo out; echo err >&2')
  assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['out\n', 'err\n', 0])
  await assert.rejects(commands.run('echo before; exit 3'), (error) => {
    assert.ok(error instanceof CommandExitError)
    assert.deepEqual([error.exitCode, error.stdout], [3, 'before\n'])
    return true
  })
  assert.equal((await commands.run('id -un; pwd')).stdout, 'user\n/home/user\n')
  assert.equal((await commands.run('id -un; pwd; echo $A', { user: 'root', cwd: '/tmp', envs: { A: '1' } })).stdout, 'root\n/tmp\n1\n')
  await assert.rejects(commands.run('true', { cwd: '/nowhere' }), InvalidArgumentError)
  await assert.rejects(commands.run('true', { user: 'nobody-here' }), AuthenticationError)
  await assert.rejects(commands.connect(999999), NotFoundError)
  assert.equal(await commands.kill(999999), false)
})

test('unicode is whole wherever it is cut', async (t) => {
  const { commands } = await create(t)
  const long = await commands.run(`python3 -c "import sys; sys.stdout.write('aü€😀' * 40000)"`)
  assert.equal(long.stdout, 'aü€😀'.repeat(40000))
  const seen = []
  const cut = await commands.run("printf '\\xf0\\x9f'; sleep 0.2; printf '\\x98\\x80'", { onStdout: (text) => void seen.push(text) })
  assert.deepEqual([cut.stdout, seen.join('')], ['😀', '😀'])
})

test('input is fed and closed, and others may listen', async (t) => {
  const { commands } = await create(t)
  const handle = await commands.run('cat', { background: true, stdin: true })
  const other = await commands.connect(handle.pid)
  await handle.sendStdin('hello ')
  await commands.sendStdin(handle.pid, 'wörld\n')
  await handle.closeStdin()
  const ends = await Promise.all([handle.wait(), other.wait()])
  assert.equal(ends[0].stdout, 'hello wörld\n')
  assert.equal(ends[1].exitCode, 0)
})

test('background, list, disconnect, reconnect and kill', async (t) => {
  const { commands } = await create(t)
  const handle = await commands.run('for i in $(seq 20); do echo tick $i; sleep 0.1; done; exit 7', { background: true, timeoutMs: 0 })
  await handle.disconnect()
  assert.ok((await commands.list()).some((found) => found.pid === handle.pid))
  const again = await commands.connect(handle.pid)
  await assert.rejects(again.wait(), (error) => error.exitCode === 7 && error.stdout.includes('tick 20\n'))
  const other = await commands.run('sleep 1000', { background: true })
  assert.equal(await other.kill(), true)
  await assert.rejects(other.wait(), CommandExitError)
  assert.equal(await commands.kill(other.pid), false)
})

test('a limit ends the command and its process', async (t) => {
  const { commands } = await create(t)
  await assert.rejects(commands.run('sleep 4321', { timeoutMs: 1000 }), TimeoutError)
  await becomesTrue('the process is gone', async () => !(await commands.list()).some((found) => found.args.join(' ').includes('4321')))
})

test('twenty at once', async (t) => {
  const { commands } = await create(t)
  const results = await Promise.all([...Array(20).keys()].map((i) => commands.run(`sleep 0.2; echo ${i}`)))
  assert.deepEqual(results.map((result) => result.stdout), [...Array(20).keys()].map((i) => `${i}\n`))
})

test('a sandbox killed during a command says so', async (t) => {
  const sandbox = await create(t)
  let told
  const ready = new Promise((resolve) => (told = resolve))
  const handle = await sandbox.commands.run('echo ready; sleep 300', { background: true, onStdout: () => told() })
  const outcome = assert.rejects(handle.wait(), (error) => error.message.includes(KILLED) || assert.fail(error.message))
  await ready
  assert.equal(await sandbox.kill(), true)
  await outcome
  assert.equal(await sandbox.isRunning(), false)
})
