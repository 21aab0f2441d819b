//! Builds the small static programs that the `roost` binary carries: the guest, the programs that start each engine's sandboxes,
//! and the attacking program of `roost doctor --attack`.
//!
//! They are built by the same cargo with their own profile and target folder, so that `cargo build` alone is enough and
//! what is embedded is never older than its sources. `ROOST_GUEST_BIN`, `ROOST_LAUNCH_BIN`, `ROOST_KEEP_BIN` and
//! `ROOST_INTRUDER_BIN` name ready-made ones.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where the crate is"));
    let root = here.join("../..").canonicalize().expect("the workspace is two folders up");
    for room in ["guest", "wire", "sys", "engine-group", "engine-native", "engine-gvisor", "intruder"] {
        println!("cargo::rerun-if-changed={}", root.join("crates").join(room).display());
    }
    println!("cargo::rerun-if-changed={}", root.join("Cargo.lock").display());
    let target = env::var("TARGET").expect("cargo says for what it builds");
    let built = |arguments: &[&str], name: &str| build(&root, &target, arguments).join(name);
    let programs = [
        ("ROOST_GUEST_BIN", &["-p", "roost-guest"][..], "roost-guest"),
        ("ROOST_LAUNCH_BIN", &["-p", "roost-engine-native", "--no-default-features"][..], "roost-launch"),
        ("ROOST_KEEP_BIN", &["-p", "roost-engine-gvisor", "--no-default-features"][..], "roost-keep"),
        ("ROOST_INTRUDER_BIN", &["-p", "roost-intruder"][..], "roost-intruder"),
    ];
    for (variable, arguments, name) in programs {
        println!("cargo::rerun-if-env-changed={variable}");
        let path = env::var_os(variable).map_or_else(|| built(arguments, name), PathBuf::from);
        println!("cargo::rustc-env={variable}={}", path.display());
    }
}

fn build(root: &Path, target: &str, arguments: &[&str]) -> PathBuf {
    let folder = root.join("target/guest");
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(root)
        .args(["build", "--quiet", "--profile", "guest", "--target", target, "--bins"])
        .arg("--target-dir")
        .arg(&folder)
        .args(arguments)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_TARGET_DIR")
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .status()
        .expect("cargo starts");
    assert!(status.success(), "failed to build {arguments:?}");
    folder.join(target).join("guest")
}
