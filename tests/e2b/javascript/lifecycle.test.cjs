// Lives of sandboxes: pauses, forks, snapshots, ends.
'use strict'

const assert = require('node:assert/strict')
const { test } = require('node:test')
const { AuthenticationError, Sandbox, SandboxNotFoundError } = require('e2b')
const { becomesTrue, bootId, create } = require('./support.cjs')

const UNKNOWN = '01zzzzzzzzzzzzzzzzzzzzzzzz'

test('made, known, listed and ended', async (t) => {
  const sandbox = await create(t, 'base', { metadata: { mark: 'js a&b' }, envs: { A: '1' } })
  assert.equal((await sandbox.commands.run('echo $A')).stdout, '1\n')
  const info = await sandbox.getInfo()
  assert.deepEqual([info.sandboxId, info.state, info.metadata], [sandbox.sandboxId, 'running', { mark: 'js a&b' }])
  const found = await Sandbox.list({ query: { metadata: { mark: 'js a&b' } } }).nextItems()
  assert.deepEqual(found.map((one) => one.sandboxId), [sandbox.sandboxId])
  await sandbox.setTimeout(300_000)
  const other = await Sandbox.connect(sandbox.sandboxId)
  assert.equal(await other.isRunning(), true)
  assert.match(sandbox.getHost(8000), new RegExp(`^8000-${sandbox.sandboxId}\\.`))
  assert.ok(Array.isArray(await sandbox.getMetrics()))
  assert.equal(await Sandbox.kill(sandbox.sandboxId), true)
  assert.equal(await sandbox.kill(), false)
  assert.equal(await sandbox.isRunning(), false)
})

test('refusals', async () => {
  await assert.rejects(Sandbox.create({ apiKey: 'e2b_wrong' }), AuthenticationError)
  await assert.rejects(Sandbox.connect(UNKNOWN), SandboxNotFoundError)
  await assert.rejects(Sandbox.getInfo(UNKNOWN), SandboxNotFoundError)
  assert.equal(await Sandbox.kill(UNKNOWN), false)
  await assert.rejects(Sandbox.create('no-such-template'), /no-such-template/)
})

test('pause and connect keep everything', async (t) => {
  const sandbox = await create(t)
  const handle = await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
  const boot = await bootId(sandbox)
  for (let cycle = 0; cycle < 3; cycle++) {
    await sandbox.files.write(`f${cycle}`, 'x')
    assert.equal(await sandbox.pause(), true)
    assert.equal(await sandbox.pause(), false)
    assert.equal((await sandbox.getInfo()).state, 'paused')
    const same = await Sandbox.connect(sandbox.sandboxId)
    assert.equal(await bootId(same), boot)
    assert.ok((await same.commands.list()).some((found) => found.pid === handle.pid))
    assert.equal((await same.commands.run('ls f* | wc -l')).stdout.trim(), `${cycle + 1}`)
  }
  await sandbox.pause({ keepMemory: false })
  await sandbox.connect()
  assert.notEqual(await bootId(sandbox), boot)
})

test('forks and snapshots', async (t) => {
  const sandbox = await create(t)
  await sandbox.files.write('a', 'x')
  const forks = await sandbox.fork({ count: 2 })
  for (const fork of forks) {
    t.after(() => fork.kill())
    assert.equal(await fork.files.read('a'), 'x')
  }
  const snapshot = await sandbox.createSnapshot()
  const born = await create(t, snapshot.snapshotId)
  assert.equal(await born.files.read('a'), 'x')
  assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
  assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false)
})

test('paused when its time is up, woken by a call', async (t) => {
  const sandbox = await create(t, 'base', { lifecycle: { onTimeout: 'pause', autoResume: true } })
  const boot = await bootId(sandbox)
  await sandbox.setTimeout(1000)
  await becomesTrue('it is paused', async () => (await sandbox.getInfo()).state === 'paused')
  assert.equal(await bootId(sandbox), boot)
})
