//! The whole binary: `run` on software devices without hugepages, every client command against it, a clean end, and every
//! way a start can fail.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use nix::sys::signal::Signal;
use support::{Lab, cpus, exists, text};

const DPDK: &str = "memory = \"no-huge\"\nmemory_mb = 128\npacket_buffers = 8192";

const ROUTER: &str = r#"
[[port]]
name = "west"
device = "net_null0,size=64,copy=1"

[[port]]
name = "east"
device = "net_null1,size=64,no-rx=1"

[[interface]]
name = "west0"
port = "west"
addresses = ["198.18.1.1/24", "2001:db8:1::1/64"]

[[interface]]
name = "east0"
port = "east"
addresses = ["198.18.2.1/24", "2001:db8:2::1/64"]

[[route]]
prefix = "10.0.0.0/8"
via = "198.18.2.2"

[[neighbor]]
interface = "east0"
address = "198.18.2.2"
mac = "02:00:00:00:02:02"
"#;

#[test]
fn an_instance_runs_answers_and_ends_without_a_trace() {
    let lab = Lab::new("life", DPDK, ROUTER);
    let mut running = lab.start();

    let status = lab.json(&["show", "status"]);
    assert_eq!(status["pid"], running.child.id());
    let ports = lab.json(&["show", "ports"]);
    assert_eq!(ports["ports"][0]["name"], "west");
    assert_eq!(ports["ports"][1]["device"], "net_null1,size=64,no-rx=1");
    assert_eq!(ports["ports"][0]["driver"], "net_null");
    assert!(ports["ports"][0]["rx"]["packets"].as_u64().unwrap() > 0, "the device makes packets");
    assert_eq!(ports["ports"][1]["rx"]["packets"], 0);
    let workers = lab.json(&["show", "workers"]);
    assert_eq!(workers["workers"].as_array().unwrap().len(), cpus().len().min(2));
    assert_eq!(workers["workers"][0]["cpu"], cpus()[0]);
    assert_eq!(lab.json(&["show", "queues"])["queues"].as_array().unwrap().len(), 2);
    let interfaces = lab.json(&["show", "interfaces"]);
    assert_eq!(interfaces["interfaces"][1]["addresses"][0], "198.18.2.1/24");
    assert!(
        lab.json(&["show", "graph"])["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .any(|n| n["packets"].as_u64() > Some(0))
    );
    lab.json(&["show", "drops"]);
    let trace = lab.json(&["trace", "1", "--port", "west"]);
    assert!(!trace["packets"][0]["hops"].as_array().unwrap().is_empty());
    for view in [
        "status",
        "ports",
        "workers",
        "queues",
        "interfaces",
        "neighbors",
        "router",
        "drops",
        "graph",
        "fib",
        "routes",
    ] {
        let out = lab.ask(&["show", view]);
        assert!(out.status.success() && !out.stdout.is_empty(), "{view}: {}", text(&out.stderr));
    }
    assert!(text(&lab.ask(&["show", "graph", "--dot"]).stdout).starts_with("digraph"));

    // The socket belongs to this one.
    let second = lab.run(&["run", lab.config().to_str().unwrap()]);
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("an instance already serves"), "{}", text(&second.stderr));
    lab.json(&["show", "status"]);

    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait(), Some(0), "{}", running.log());
    assert!(!exists(&lab.socket()) && !exists(lab.socket().parent().unwrap()));
    for dir in lab.runtime_dirs() {
        assert!(!exists(&dir), "{} is left behind", dir.display());
    }
    assert_eq!(lab.hugepages(), Vec::<std::path::PathBuf>::new());
    let gone = lab.ask(&["show", "ports"]);
    assert_eq!(gone.status.code(), Some(4));
    assert!(text(&gone.stderr).contains("no instance serves"), "{}", text(&gone.stderr));
}

#[test]
fn routes_neighbors_and_tables_are_shown() {
    let lab = Lab::new("router", DPDK, ROUTER);
    let mut running = lab.start();
    let route = lab.json(&["show", "routes", "10.0.0.0/8"]);
    assert_eq!(route["routes"][0]["source"], "static");
    assert_eq!(route["routes"][0]["paths"][0]["gateway"], "198.18.2.2");
    assert_eq!(route["routes"][0]["paths"][0]["interface"], "east0");
    assert_eq!(lab.json(&["show", "routes", "--longest", "10.1.2.3"])["routes"][0]["prefix"], "10.0.0.0/8");
    let prefixes = |args: &[&str]| -> Vec<String> {
        let routes = lab.json(&[&["show", "routes"], args].concat())["routes"].as_array().unwrap().clone();
        routes.iter().map(|r| r["prefix"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(prefixes(&["--via", "198.18.2.2", "--source", "static"]), ["10.0.0.0/8"]);
    let connected = ["198.18.1.0/24", "198.18.2.0/24", "2001:db8:1::/64", "2001:db8:2::/64"];
    assert_eq!(prefixes(&["--source", "connected"]), connected);
    assert_eq!(prefixes(&["--source", "connected", "--limit", "2"]), connected[..2]);
    assert_eq!(prefixes(&["--source", "connected", "--after", "198.18.1.0/24", "--all"]), connected[1..]);
    assert_eq!(prefixes(&["--source", "connected", "--interface", "east0"]), [connected[1], connected[3]]);
    assert_eq!(prefixes(&["198.18.0.0/16", "--longer", "--source", "connected"]), connected[..2]);
    assert_eq!(prefixes(&["10.1.0.0/16"]), [""; 0], "exactly this prefix, not what covers it");
    assert_eq!(prefixes(&["10.0.0.0/9", "--longer"]), [""; 0]);
    assert_eq!(lab.ask(&["show", "routes", "--interface", "nosuch"]).status.code(), Some(1));
    let neighbors = lab.json(&["show", "neighbors"]);
    assert_eq!(neighbors["neighbors"][0]["mac"], "02:00:00:00:02:02");
    assert_eq!(neighbors["neighbors"][0]["state"], "static");
    let fibs = lab.json(&["show", "fib"]);
    assert_eq!(fibs["fibs"].as_array().unwrap().len(), 2);
    assert!(fibs["fibs"][0]["routes"].as_u64().unwrap() >= 3);
    running.signal(Signal::SIGINT);
    assert_eq!(running.wait(), Some(0), "{}", running.log());
}

#[test]
fn a_queue_moves_while_packets_flow() {
    if cpus().len() < 2 {
        eprintln!("SKIPPED: only one CPU");
        return;
    }
    let lab = Lab::new("move", DPDK, ROUTER);
    let mut running = lab.start();
    let place = |v: serde_json::Value| v["queues"][0]["worker"].as_u64().unwrap();
    let from = place(lab.json(&["show", "queues"]));
    let to = (1 - from).to_string();
    let moved = lab.json(&["queue", "move", "west", "0", &to]);
    assert_eq!(moved["from"], from);
    assert_eq!(place(lab.json(&["show", "queues"])), 1 - from);
    let before = lab.json(&["show", "queues"])["queues"][0]["packets"].as_u64().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert!(lab.json(&["show", "queues"])["queues"][0]["packets"].as_u64().unwrap() > before, "it is polled");
    let wrong = lab.ask(&["queue", "move", "west", "0", "9"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(text(&wrong.stderr).contains("there is no worker 9"), "{}", text(&wrong.stderr));
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait(), Some(0), "{}", running.log());
}

#[test]
fn what_a_killed_instance_left_does_not_stop_the_next() {
    let lab = Lab::new("killed", DPDK, ROUTER);
    let mut first = lab.start();
    first.signal(Signal::SIGKILL);
    first.wait();
    assert!(exists(&lab.socket()), "it had no chance to remove its socket");
    assert_eq!(lab.ask(&["show", "ports"]).status.code(), Some(4));
    let mut second = lab.start();
    lab.json(&["show", "ports"]);
    second.signal(Signal::SIGTERM);
    assert_eq!(second.wait(), Some(0), "{}", second.log());
    assert!(!exists(&lab.socket()));
}

/// A pipe that nobody writes stands for a slow file: reading the configuration never ends by itself.
#[test]
fn a_signal_ends_it_while_a_table_does_not_come() {
    let table = "[[rib]]\nfile = \"table\"\ndefault = \"198.18.2.2\"\n";
    let lab = Lab::new("slow", DPDK, &format!("{ROUTER}\n{table}"));
    let made = std::process::Command::new("mkfifo").arg(lab.dir.path().join("table")).status().unwrap();
    assert!(made.success());
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let mut child = support::linerate().arg("run").arg(lab.config()).spawn().unwrap();
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        let tasks = || std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        let start = std::time::Instant::now();
        while tasks() < 2 {
            assert!(start.elapsed().as_secs() < 20, "it waits for signals in a thread of its own");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        nix::sys::signal::kill(pid, signal).unwrap();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if start.elapsed().as_secs() >= 20 {
                child.kill().unwrap();
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        assert_eq!(status.code(), Some(code));
        assert!(!exists(&lab.socket()));
    }
}

#[test]
fn too_few_open_files() {
    let lab = Lab::new("files", DPDK, ROUTER);
    let command = "ulimit -n 16 && exec \"$0\" run \"$1\" --log error";
    let program = support::linerate().get_program().to_owned();
    let out = std::process::Command::new("sh").args(["-c", command]).arg(program).arg(lab.config()).output();
    let out = out.unwrap();
    assert_eq!((out.status.code(), text(&out.stderr).lines().count()), (Some(1), 1), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("16 files: expected at least 64"), "{}", text(&out.stderr));
    assert!(!exists(&lab.socket()));
}

/// Starts that fail: name, `[dpdk]`, the rest, exit code, what the message has.
fn failing(name: &str, dpdk: &str, config: &str, code: i32, words: &[&str]) {
    let lab = Lab::new(name, dpdk, config);
    let out = lab.run(&["run", lab.config().to_str().unwrap(), "--log", "error"]);
    let message = text(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{name}: {message}");
    // One sentence: the last line, whatever DPDK itself had to say before.
    let last = message.trim_end().lines().last().unwrap_or_default();
    for word in words {
        assert!(last.contains(word), "{name}: {word} is not in {message}");
    }
    assert!(!message.contains("panicked"), "{name}: {message}");
    assert!(!exists(&lab.socket()), "{name} left its socket");
    for dir in lab.runtime_dirs() {
        assert!(!exists(&dir), "{name}: {} is left behind", dir.display());
    }
}

#[test]
fn a_device_that_is_not_there() {
    let config = ROUTER.replace("net_null1,size=64,no-rx=1", "net_nosuch1");
    failing(
        "nodev",
        DPDK,
        &config,
        3,
        &["port[1].device: DPDK has no driver \"net_nosuch\": expected a device of"],
    );
}

#[test]
fn a_pci_device_that_is_not_there() {
    let config = ROUTER.replace("net_null1,size=64,no-rx=1", "0000:ff:1f.7");
    failing("nopci", DPDK, &config, 1, &["port `east`", "0000:ff:1f.7"]);
}

#[test]
fn a_linux_interface_that_is_not_there() {
    let config = ROUTER.replace("net_null1,size=64,no-rx=1", "net_af_packet1,iface=nosuchif0");
    failing("noif", DPDK, &config, 1, &["port `east`", "nosuchif0"]);
}

#[test]
fn too_little_memory() {
    let dpdk = "memory = \"no-huge\"\nmemory_mb = 64\npacket_buffers = 1000000";
    failing("memory", dpdk, ROUTER, 1, &["memory"]);
}

#[test]
fn no_hugepages() {
    let free = std::fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten().any(|e| {
        let n = std::fs::read_to_string(e.path().join("free_hugepages")).unwrap_or_default();
        n.trim().parse::<u64>().unwrap_or(0) > 0
    });
    if free {
        eprintln!("SKIPPED: this host has free hugepages");
        return;
    }
    failing("huge", "memory = \"hugepages\"\nmemory_mb = 64", ROUTER, 1, &["hugepages"]);
}

#[test]
fn what_the_configuration_gets_wrong_is_found_before_anything_is_touched() {
    let line = |lab_text: &str| format!("{ROUTER}\n{lab_text}");
    failing(
        "cpu",
        DPDK,
        &line("[[worker]]\ncpu = 1000\n"),
        3,
        &["t.toml:", "cpu: CPU 1000 is not there: expected one of"],
    );
    let cpu = cpus()[0];
    failing(
        "twice",
        DPDK,
        &line(&format!("[[worker]]\ncpu = {cpu}\n")),
        3,
        &["already runs worker 0", "expected"],
    );
    let again = "[[port]]\nname = \"x\"\ndevice = \"net_null0\"\n";
    failing(
        "port",
        DPDK,
        &line(again),
        3,
        &["t.toml:", "device: the device of port \"west\"", "again: expected"],
    );
    let hop = "[[route]]\nprefix = \"10.9.0.0/16\"\nvia = \"203.0.113.1\"\n";
    failing(
        "hop",
        DPDK,
        &line(hop),
        3,
        &["via: the gateway 203.0.113.1 is on no connected network: expected one in"],
    );
    failing(
        "rib",
        DPDK,
        &line("[[rib]]\nfile = \"/no/such/file\"\n"),
        3,
        &["rib[0].file: cannot open the route table"],
    );
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("table.txt");
    std::fs::write(&table, "10.1.0.0/16 198.18.2.2\n10.2.0.0/33 198.18.2.2\n").unwrap();
    let rib = format!("[[rib]]\nfile = \"{}\"\n", table.display());
    failing(
        "line",
        DPDK,
        &line(&rib),
        3,
        &["table.txt:2: found `10.2.0.0/33`: expected a prefix length from 0 to 32"],
    );
    failing("key", DPDK, &line("[api2]\n"), 3, &["unknown key `api2`: did you mean `api`?"]);
}

#[test]
fn check_says_what_is_wrong_and_what_is_right() {
    let lab = Lab::new("check", DPDK, ROUTER);
    let out = lab.run(&["check", lab.config().to_str().unwrap()]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(
        text(&out.stdout).contains("2 ports, 2 interfaces, 1 route, 1 static neighbour"),
        "{}",
        text(&out.stdout)
    );
    std::fs::write(lab.config(), "[[worker]]\ncpu = \"one\"\nspeed = 3\n").unwrap();
    let out = lab.run(&["check", lab.config().to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(3));
    let message = text(&out.stderr);
    let places: Vec<&str> =
        message.lines().filter_map(|l| l.split("t.toml:").nth(1)?.split(' ').next()).collect();
    assert_eq!(places, ["1:1:", "2:7:", "3:1:"], "{message}");
    // A configuration of a larger host: what to do is said once, and done it is valid.
    std::fs::write(lab.config(), format!("[[worker]]\ncpu = 1000\n{ROUTER}")).unwrap();
    let out = lab.run(&["check", lab.config().to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(3));
    let message = text(&out.stderr);
    assert!(message.lines().last().unwrap().contains("use --other-host"), "{message}");
    let out = lab.run(&["check", "--other-host", lab.config().to_str().unwrap()]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    std::fs::write(lab.config(), "[[worker]]\ncpu = \"one\"\n").unwrap();
    let message = text(&lab.run(&["check", lab.config().to_str().unwrap()]).stderr);
    assert!(!message.contains("--other-host"), "{message}");
    assert_eq!(lab.run(&["check", "/no/such/file"]).status.code(), Some(3));
    assert_eq!(lab.run(&["frobnicate"]).status.code(), Some(2));
}
