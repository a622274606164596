//! `linerate demo` and `bench forward` interrupted: an exit code that tells the signal, and nothing left behind.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Where DPDK may keep files.
fn bases() -> Vec<PathBuf> {
    let user = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let all = [Some(PathBuf::from("/var/run")), user, Some(PathBuf::from("/tmp"))];
    all.into_iter().flatten().map(|b| b.join("dpdk")).collect()
}

fn runtime_dir(name: &str) -> Option<PathBuf> {
    bases().into_iter().map(|b| b.join(name)).find(|d| d.exists())
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < end, "{what} did not happen in a minute");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Starts the program in a directory of its own for temporary files, interrupts it once `ready`, and checks what is left.
fn interrupted(word: &str, args: &[&str], signal: Signal, ready: impl Fn(&Path) -> bool) {
    let dir = tempfile::tempdir().unwrap();
    let mut child: Child = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(args)
        .current_dir(dir.path())
        .env("TMPDIR", dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let name = format!("linerate-{word}-{}", child.id());
    until("DPDK's start", || runtime_dir(&name).is_some());
    until("the program is ready", || ready(dir.path()));
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
    let mut code = None;
    until("its end", || {
        code = child.try_wait().unwrap().map(|s| s.code());
        code.is_some()
    });
    assert_eq!(code, Some(Some(128 + signal as i32)));
    assert_eq!(runtime_dir(&name), None, "left behind");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "temporary files are left");
}

#[test]
fn an_interrupted_demo_leaves_nothing_and_cleans_up_after_a_killed_one() {
    // No process has this number: Linux' largest is 2²².
    let stale: Vec<PathBuf> = bases()
        .into_iter()
        .map(|b| b.join("linerate-demo-999999999"))
        .filter(|d| std::fs::create_dir_all(d).is_ok())
        .collect();
    assert!(!stale.is_empty());
    interrupted("demo", &["demo", "--quick"], Signal::SIGINT, |_| true);
    assert!(stale.iter().all(|d| !d.exists()), "{stale:?}");
}

#[test]
fn an_interrupted_benchmark_leaves_nothing() {
    let captures = |dir: &Path| std::fs::read_dir(dir).unwrap().count() > 0;
    interrupted("bench", &["bench", "forward", "--quick"], Signal::SIGTERM, captures);
}
