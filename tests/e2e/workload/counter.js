// A counter and some memory, asked about over HTTP.
const crypto = require("crypto");
const secret = crypto.randomBytes(4 << 20);
let count = 0;
setInterval(() => (count += 1), 5);
require("http")
  .createServer((_, answer) => {
    const hash = crypto.createHash("sha256").update(secret).digest("hex");
    answer.end(JSON.stringify({ hash, count }));
  })
  .listen(8001, "127.0.0.1");
