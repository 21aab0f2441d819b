//! What runs in a sandbox: a process that keeps a block of memory, and a web server.

/// Runs both, for as long as memory is kept. The block is random and in the memory of one shell alone; all else lies in files
/// that are in memory too.
pub(crate) const START: &str = "cd /dev/shm; rm -f ask answer; mkdir -p www; echo served > www/index.html; \
    httpd -f -p 8080 -h /dev/shm/www & M=$(head -c 1000000 /dev/urandom | base64); mkfifo new; exec 3<>new; mv new ask; \
    while read x <&3; do echo \"$x $(echo \"$M\" | sha256sum)\" > answer.new; mv answer.new answer; done";

/// Asks for the hash of the block; each question has a number of its own, so that no old answer counts.
pub(crate) fn ask(number: u64) -> String {
    format!(
        "cd /dev/shm; timeout 30 sh -c 'until [ -p ask ]; do sleep 0.02; done; echo q{number} > ask; \
         until grep -q \"^q{number} \" answer 2>/dev/null; do sleep 0.02; done' && cut -d ' ' -f 2 answer"
    )
}

/// Takes the rest of the pool for a moment.
pub(crate) const FILL: &str = "n=0; while [ $n -lt 10 ] && fallocate -l 100M /root/filling-$n; do n=$((n+1)); done 2>/dev/null; \
    sleep 0.5; rm -f /root/filling-*; echo emptied";
