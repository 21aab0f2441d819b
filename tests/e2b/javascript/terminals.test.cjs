// Terminals: input, size, leaving and coming back.
'use strict'

const assert = require('node:assert/strict')
const { test } = require('node:test')
const { create } = require('./support.cjs')

test('a shell in a terminal', async (t) => {
  const sandbox = await create(t)
  const got = []
  const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: (data) => void got.push(Buffer.from(data)), envs: { MARK: 'here' } })
  await sandbox.pty.resize(terminal.pid, { cols: 132, rows: 50 })
  await sandbox.pty.sendInput(terminal.pid, Buffer.from('stty size; echo $MARK-$TERM; exit 0\n'))
  assert.equal((await terminal.wait()).exitCode, 0)
  const text = Buffer.concat(got).toString()
  assert.ok(text.includes('50 132\r\n') && text.includes('here-xterm-256color\r\n'), text)
})

test('one leaves and comes back', async (t) => {
  const sandbox = await create(t)
  const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: () => {}, timeoutMs: 0 })
  await terminal.disconnect()
  const got = []
  const again = await sandbox.pty.connect(terminal.pid, { onData: (data) => void got.push(Buffer.from(data)) })
  await sandbox.pty.sendInput(terminal.pid, Buffer.from('echo $((6*7)); exit\n'))
  await again.wait()
  assert.ok(Buffer.concat(got).toString().includes('42\r\n'))
  assert.equal(await sandbox.pty.kill(terminal.pid), false)
})
