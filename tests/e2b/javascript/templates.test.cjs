// Templates built by the package.
'use strict'

const assert = require('node:assert/strict')
const fs = require('node:fs')
const os = require('node:os')
const path = require('node:path')
const { test } = require('node:test')
const { BuildError, Template, waitForPort } = require('e2b')
const { create } = require('./support.cjs')

test('a template is built and used', async (t) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'e2b-suite-'))
  t.after(() => fs.rmSync(folder, { recursive: true }))
  fs.writeFileSync(path.join(folder, 'index.html'), 'from the template')
  const recipe = Template({ fileContextPath: folder })
    .fromTemplate('base')
    .setEnvs({ STAGE: 'built' })
    .copy('index.html', '/home/user/site/index.html')
    .runCmd('echo $STAGE > ~/stage')
    .setStartCmd('python3 -m http.server 8000 -d /home/user/site', waitForPort(8000))
  const logs = []
  await Template.build(recipe, 'suite-js', { onBuildLogs: (entry) => void logs.push(entry) })
  assert.ok(logs.length > 0)
  assert.equal(await Template.exists('suite-js'), true)
  const sandbox = await create(t, 'suite-js')
  assert.equal((await sandbox.commands.run('cat stage; curl -s localhost:8000/')).stdout, 'built\nfrom the template')
})

test('a step that fails says so', async () => {
  const recipe = Template().fromTemplate('base').runCmd('echo on the way; exit 9')
  await assert.rejects(Template.build(recipe, 'suite-js-broken'), BuildError)
})
