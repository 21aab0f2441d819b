//! Puts the built page into the binary: everything in `target/web`, where `make web` leaves it, or in `ROOST_WEB`.
//!
//! Whoever builds with cargo alone needs no npm: where nothing was built, a small page says how to. `crates/page/src/files.rs`
//! reads what is written here.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Vite puts files here whose names change with what is in them.
const HASHED: &str = "assets/";

fn main() {
    println!("cargo::rerun-if-env-changed=ROOST_WEB");
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where the crate is"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where to write"));
    let folder = env::var_os("ROOST_WEB").map_or_else(|| here.join("../../target/web"), PathBuf::from);
    // Cargo looks at it again when something in it changes; if it were missing, at every build.
    fs::create_dir_all(&folder).expect("the folder of the page can be made");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut paths = Vec::new();
    walk(&folder, &mut paths).expect("the built page can be read");
    paths.sort();
    let built = folder.join("index.html").exists();
    let mut table = String::new();
    if built {
        for path in &paths {
            let name = path.strip_prefix(&folder).expect("it is in the folder").to_string_lossy().replace('\\', "/");
            add(&mut table, &out, &name, &fs::read(path).expect("a file of the page can be read"));
        }
    } else {
        let unbuilt = fs::read(here.join("src/unbuilt.html")).expect("the page that says how to build it is there");
        add(&mut table, &out, "index.html", &unbuilt);
    }
    println!("cargo::rerun-if-changed={}", here.join("src/unbuilt.html").display());
    fs::write(out.join("files.rs"), format!("&[\n{table}]")).expect("the table can be written");
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { walk(&path, found)? } else { found.push(path) }
    }
    Ok(())
}

/// Writes one file, as it is and packed, and its line in the table.
fn add(table: &mut String, out: &Path, name: &str, content: &[u8]) {
    let hash: String = blake3::hash(content).to_hex().chars().take(20).collect();
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(content).expect("memory takes it");
    let packed = packed.finish().expect("memory takes it");
    let plain = out.join(format!("{hash}.bin"));
    let zipped = out.join(format!("{hash}.gz"));
    fs::write(&plain, content).expect("a file can be written");
    fs::write(&zipped, packed).expect("a file can be written");
    let path = if name == "index.html" { "/".to_owned() } else { format!("/{name}") };
    let forever = name.starts_with(HASHED);
    writeln!(
        table,
        "File {{ path: {path:?}, kind: {:?}, tag: \"\\\"{hash}\\\"\", forever: {forever}, content: include_bytes!({plain:?}), packed: include_bytes!({zipped:?}) }},",
        kind_of(name)
    )
    .expect("text takes it");
}

fn kind_of(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("json" | "webmanifest") => "application/json",
        Some("woff2") => "font/woff2",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
