//! The command line of the attacking program; `roost doctor --attack` reads its output.
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::process::ExitCode;
use std::thread;

use roost_intruder::{Thing, try_doors};

const USAGE: &str = "usage: roost-intruder doors | take THING | need THING | burn THING | serve PORT | nothing";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["nothing"] => Ok(()),
        ["doors"] => doors(),
        ["take", name] => with_thing(name, take),
        ["need", name] => with_thing(name, Thing::need),
        ["burn", name] => with_thing(name, Thing::burn),
        ["serve", port] => port.parse().map_err(io::Error::other).and_then(serve),
        _ => Err(io::Error::other(USAGE)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn with_thing(name: &str, work: impl FnOnce(Thing) -> io::Result<()>) -> io::Result<()> {
    work(Thing::named(name).ok_or_else(|| io::Error::other(USAGE))?)
}

/// Prints one line for each door: `shut` or `open`, its name, and the reason.
fn doors() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for door in try_doors() {
        let (state, reason) = match &door.outcome {
            Ok(reason) => ("shut", reason),
            Err(reason) => ("open", reason),
        };
        writeln!(out, "{state}\t{}\t{reason}", door.name)?;
    }
    Ok(())
}

/// Takes all there is, says how much, and keeps it until this process is ended.
fn take(thing: Thing) -> io::Result<()> {
    let taken = thing.take()?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}\t{}", taken.count, taken.until)?;
    out.flush()?;
    loop {
        thread::park();
    }
}

/// Answers every HTTP request with `well`.
fn serve(port: u16) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    for stream in listener.incoming() {
        let answer = stream.and_then(|mut stream| {
            let mut request = [0_u8; 4096];
            let _read = stream.read(&mut request)?;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nwell")
        });
        if let Err(error) = answer {
            eprintln!("a request was not answered: {error}");
        }
    }
    Ok(())
}
