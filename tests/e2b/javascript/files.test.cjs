// Files, folders, watches and signed addresses.
'use strict'

const assert = require('node:assert/strict')
const crypto = require('node:crypto')
const { test } = require('node:test')
const { FileNotFoundError, FilesystemEventType, FileType, InvalidArgumentError } = require('e2b')
const { becomesTrue, create } = require('./support.cjs')

test('in and out in every form', async (t) => {
  const { files } = await create(t)
  const written = await files.write('notes/a.txt', 'hällo')
  assert.deepEqual([written.name, written.path], ['a.txt', '/home/user/notes/a.txt'])
  assert.equal(await files.read('notes/a.txt'), 'hällo')
  const bytes = Uint8Array.from({ length: 256 }, (_, i) => i)
  await files.write('b.bin', bytes.buffer)
  assert.deepEqual(await files.read('b.bin', { format: 'bytes' }), bytes)
  assert.equal(await (await files.read('b.bin', { format: 'blob' })).size, 256)
  await files.write('c.txt', new Blob(['blob']).stream())
  assert.equal(await files.read('c.txt'), 'blob')
  await files.write('empty', '')
  assert.equal(await files.read('empty'), '')
  const many = await files.write([...Array(5).keys()].map((i) => ({ path: `many/${i}`, data: `text ${i}` })))
  assert.equal(many.length, 5)
})

test('folders, names and what is known of them', async (t) => {
  const { files, commands } = await create(t)
  assert.equal(await files.makeDir('a/b'), true)
  assert.equal(await files.makeDir('a/b'), false)
  await files.write('a/b/f', '12345')
  assert.deepEqual((await files.list('a', { depth: 2 })).map((entry) => entry.path), ['/home/user/a/b', '/home/user/a/b/f'])
  const info = await files.getInfo('a/b/f')
  assert.deepEqual([info.type, info.size, info.permissions, info.owner], [FileType.FILE, 5, '-rw-r--r--', 'user'])
  assert.equal((await files.rename('a/b/f', 'g/h')).path, '/home/user/g/h')
  assert.deepEqual([await files.exists('a/b/f'), await files.exists('g/h')], [false, true])
  await files.remove('a')
  await assert.rejects(files.read('a/b/f'), FileNotFoundError)
  await assert.rejects(files.list('nowhere'), FileNotFoundError)
  await assert.rejects(files.read('g'), InvalidArgumentError)
  assert.equal((await commands.run('cat g/h')).stdout, '12345')
})

test('a new file in a watched folder is three events', async (t) => {
  const { files, commands } = await create(t)
  await files.makeDir('w/deep')
  const events = []
  const watch = await files.watchDir('w', (event) => void events.push([event.type, event.name]), { recursive: true })
  await files.write('w/deep/new.txt', 'x')
  await becomesTrue('three events', () => events.length >= 3)
  await commands.run('mkdir w/end')
  await becomesTrue('the end', () => events.some(([, name]) => name === 'end'))
  const kinds = [FilesystemEventType.CREATE, FilesystemEventType.CHMOD, FilesystemEventType.WRITE]
  assert.deepEqual(events, [...kinds.map((kind) => [kind, 'deep/new.txt']), [FilesystemEventType.CREATE, 'end']])
  await watch.stop()
  await assert.rejects(files.watchDir('nowhere', () => {}), FileNotFoundError)
})

test('signed addresses need nothing else', async (t) => {
  const sandbox = await create(t)
  await sandbox.files.write('s.txt', 'signed')
  assert.equal(await (await fetch(await sandbox.downloadUrl('s.txt'))).text(), 'signed')
  const form = new FormData()
  form.append('file', new Blob(['came up']))
  const up = await fetch(await sandbox.uploadUrl('up.txt', { useSignatureExpiration: 60_000 }), { method: 'POST', body: form })
  assert.equal(up.status, 200)
  assert.equal(await sandbox.files.read('up.txt'), 'came up')
})

test('a hundred megabytes each way', async (t) => {
  const sandbox = await create(t)
  const size = 100 * 1024 * 1024
  const data = Buffer.alloc(size)
  for (let at = 0; at < size; at += 4096) data.writeUInt32LE(at, at)
  const digest = crypto.createHash('sha256').update(data).digest('hex')
  await sandbox.files.write('large', new Blob([data]), { requestTimeoutMs: 120_000 })
  assert.equal((await sandbox.commands.run('sha256sum < large')).stdout.split(' ')[0], digest)
  const down = crypto.createHash('sha256')
  for await (const piece of await sandbox.files.read('large', { format: 'stream', requestTimeoutMs: 120_000 })) down.update(piece)
  assert.equal(down.digest('hex'), digest)
})
