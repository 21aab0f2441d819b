//! `roost-guest sftp-server`: the SSH file transfer protocol, version 3, on standard input and output.
//!
//! It is a process of whoever transfers files, as any `sftp-server` is, so the kernel decides what it may touch. It is here
//! because most templates bring none.

mod names;
mod packet;
mod server;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::ExitCode;

use packet::Malformed;
use server::Server;

/// Packets that ask for more than this are not read any further.
const LONGEST: usize = 512 * 1024;
const BUFFER: usize = 256 * 1024;

/// Serves until the other side is done.
pub(crate) fn run() -> ExitCode {
    match serve(io::stdin().lock(), io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sftp-server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(input: impl Read, mut output: impl Write) -> io::Result<()> {
    let malformed = |_: Malformed| io::Error::new(io::ErrorKind::InvalidData, "a packet makes no sense");
    let mut input = BufReader::with_capacity(BUFFER, input);
    let mut server = Server::default();
    let mut answers = Vec::new();
    let mut request = Vec::new();
    while !input.fill_buf()?.is_empty() {
        let mut length = [0; 4];
        input.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length == 0 || length > LONGEST {
            return Err(malformed(Malformed));
        }
        request.resize(length, 0);
        input.read_exact(&mut request)?;
        answers.extend_from_slice(&server.answer(&request).map_err(malformed)?.finish());
        // Together with those of requests that are here already, but none waits for one that is not.
        if input.buffer().is_empty() || answers.len() >= BUFFER {
            output.write_all(&answers)?;
            output.flush()?;
            answers.clear();
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "sftp/tests.rs"]
mod tests;
