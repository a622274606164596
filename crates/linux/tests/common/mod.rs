//! A network namespace for one test: each test is a process of its own.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::process::Command;

/// Puts the calling thread, and what it starts, into a new network namespace. `false`: not allowed to, the test is
/// skipped.
pub(crate) fn new_namespace() -> bool {
    match nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET) {
        Ok(()) => {
            ip("link set lo up");
            true
        }
        Err(error) => {
            eprintln!("SKIPPED: cannot make a network namespace ({error}); run as root");
            false
        }
    }
}

/// Runs a command of iproute2 in the namespace of the calling thread.
pub(crate) fn ip(arguments: &str) -> String {
    run("ip", arguments)
}

/// Runs a program in the namespace of the calling thread. It must succeed.
pub(crate) fn run(program: &str, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split_whitespace()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The output of an iproute2 command as JSON.
pub(crate) fn ip_json(arguments: &str) -> Vec<serde_json::Value> {
    let text = ip(&format!("-j -d {arguments}"));
    if text.trim().is_empty() { Vec::new() } else { serde_json::from_str(&text).unwrap() }
}

/// Two interfaces on one wire, `eth0` and `eth1`, up, with addresses on `eth0`.
pub(crate) fn wire() {
    ip("link add eth0 type veth peer name eth1");
    for name in ["eth0", "eth1"] {
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/accept_dad"), "0").unwrap();
        ip(&format!("link set {name} up"));
    }
    ip("addr add 198.18.0.1/24 dev eth0");
    ip("addr add 2001:db8::1/64 dev eth0 nodad");
    // Link-local addresses and their routes come once the kernel has noticed the carrier.
    while ip("-6 route show table local").matches("local fe80::").count() < 2
        || ip("-6 route show").matches("fe80::/64").count() < 2
    {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
