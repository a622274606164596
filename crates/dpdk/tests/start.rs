//! Starting and ending DPDK: once, with the caller's affinity intact, leaving nothing, errors as sentences.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::path::Path;

use common::{Fixture, packet};
use linerate_dpdk::{
    CleanupError, Device, Eal, EalConfig, EalError, Memory, Pool, PoolConfig, Port, PortConfig, PortError,
    register_worker_thread, take_log, tsc, tsc_hz,
};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

fn affinity() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap();
    (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap()).collect()
}

fn runtime_dir(eal: &Eal) -> Option<std::path::PathBuf> {
    let prefix = &eal.config().file_prefix;
    let base = std::env::var("XDG_RUNTIME_DIR").unwrap_or_else(|_| "/tmp".into());
    ["/var/run", base.as_str()].iter().map(|b| Path::new(b).join("dpdk").join(prefix)).find(|p| p.exists())
}

#[test]
fn it_starts_once_keeps_the_callers_cpus_and_leaves_nothing() {
    let before = affinity();
    let config = EalConfig { telemetry: true, ..EalConfig::default() };
    let eal = Eal::init(&config).unwrap();
    assert_eq!(affinity(), before);
    assert!(eal.version().starts_with("DPDK "), "{}", eal.version());
    assert!(take_log().iter().any(|line| line.starts_with("EAL: ")));
    assert!(matches!(Eal::init(&EalConfig::default()), Err(EalError::AlreadyStarted)));
    assert!(std::ptr::eq(Eal::get().unwrap(), eal));
    let dir = runtime_dir(eal).expect("a runtime directory");
    assert!(dir.join("dpdk_telemetry.v2").exists());
    eal.cleanup().unwrap();
    assert!(!dir.exists(), "{dir:?} is left");
    assert!(matches!(eal.cleanup(), Err(CleanupError::NotRunning)));
    assert!(matches!(Eal::init(&EalConfig::default()), Err(EalError::AlreadyStarted)));
}

#[test]
fn its_own_threads_stay_on_the_control_cpu() {
    let cpu = *affinity().last().unwrap();
    let eal = Eal::init(&EalConfig { control_cpu: Some(cpu), ..EalConfig::default() }).unwrap();
    let mut seen = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        let name = std::fs::read_to_string(path.join("comm")).unwrap();
        if name.starts_with("eal-intr") || name.starts_with("rte_mp") {
            let status = std::fs::read_to_string(path.join("status")).unwrap();
            let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap();
            assert_eq!(list.trim(), cpu.to_string(), "{name}");
            seen += 1;
        }
    }
    assert!(seen > 0, "DPDK's interrupt thread was not found");
    eal.cleanup().unwrap();
}

#[test]
fn nothing_of_it_can_be_used_after_the_end() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 100, 256);
    let eal = fixture.eal;
    std::mem::forget(fixture);
    assert!(tsc_hz() > 100_000_000);
    assert!(tsc() < tsc());
    eal.cleanup().unwrap();
    assert!(pool.alloc().is_none());
    assert!(!pool.alloc_bulk(&mut linerate_pipeline::Batch::new(), 1));
    assert_eq!((pool.available(), tsc_hz()), (0, 0));
    assert!(matches!(Device::open(eal, "net_null0"), Err(PortError::NotRunning)));
    assert!(matches!(Device::ring_pair(eal, "x", 64, 1), Err(PortError::NotRunning)));
    assert!(Pool::create(eal, &PoolConfig { name: "q".into(), ..PoolConfig::default() }).is_err());
    assert!(register_worker_thread().is_err());
}

#[test]
fn it_does_not_end_while_anything_is_in_use() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 100, 256);
    let eal = fixture.eal;
    let refused = || eal.cleanup().unwrap_err().to_string();
    let held = packet(pool, 1, 64);
    assert_eq!(refused(), "DPDK cannot end while 1 packet buffer(s) of pool 'p' are in use");
    drop(held);
    let port = Port::open(eal, "net_null0", &PortConfig::default(), pool).unwrap();
    assert_eq!(refused(), "DPDK cannot end while 1 port(s) are open");
    drop(port);
    let worker = register_worker_thread().unwrap();
    assert_eq!(refused(), "DPDK cannot end while 1 worker thread(s) are registered");
    drop(worker);
    let other = std::thread::spawn(move || eal.cleanup().unwrap_err().to_string()).join().unwrap();
    assert_eq!(other, "DPDK must be ended by the thread that started it");
}

#[test]
fn what_the_host_cannot_give_is_refused_before_anything_is_touched() {
    let init = |config: EalConfig| Eal::init(&config).unwrap_err().to_string();
    let with_memory = |memory| init(EalConfig { memory, ..EalConfig::default() });
    let error = with_memory(Memory::NoHuge { mb: u32::MAX });
    assert!(
        error.starts_with("DPDK shall have 4294967295 MiB of ordinary memory but this host has "),
        "{error}"
    );
    assert!(error.ends_with(" MiB free: ask for less"), "{error}");
    let error = with_memory(Memory::Hugepages { mb: 4_000_000_000 });
    assert!(error.contains("MiB of hugepages but this host has"), "{error}");
    assert!(error.contains("sysctl vm.nr_hugepages=2000000000"), "{error}");
    let error = init(EalConfig { control_cpu: Some(1000), ..EalConfig::default() });
    assert!(error.starts_with("DPDK cannot run on CPU 1000: Invalid argument"), "{error}");
    let error = init(EalConfig { file_prefix: "a/b".into(), ..EalConfig::default() });
    assert!(error.contains("file prefix 'a/b'"), "{error}");
    // None of these used up the one start.
    let before = affinity();
    let eal = Eal::init(&EalConfig::default()).unwrap();
    assert_eq!(affinity(), before);
    eal.cleanup().unwrap();
}

#[test]
fn a_wrong_device_at_start_is_one_sentence() {
    let config = EalConfig { vdevs: vec!["net_nonsense0".into()], ..EalConfig::default() };
    let before = affinity();
    let error = Eal::init(&config).unwrap_err().to_string();
    assert!(error.starts_with("DPDK does not start: "), "{error}");
    assert!(error.contains("net_nonsense0") && error.contains("librte-meta-net"), "{error}");
    assert!(!error.contains('\n'), "{error}");
    assert_eq!(affinity(), before);
    assert!(matches!(Eal::init(&EalConfig::default()), Err(EalError::AlreadyStarted)));
}

/// DPDK prints a page of usage for such an argument: nobody shall see that. The test runs itself as a process of its own to
/// see all that is written.
#[test]
fn an_argument_that_dpdk_does_not_take_is_one_sentence() {
    if std::env::var_os("LINERATE_WRONG_ARGUMENT").is_none() {
        let name = "an_argument_that_dpdk_does_not_take_is_one_sentence";
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env("LINERATE_WRONG_ARGUMENT", "1")
            .output()
            .unwrap();
        let all = String::from_utf8_lossy(&[child.stdout, child.stderr].concat()).into_owned();
        assert!(child.status.success(), "{all}");
        assert!(!all.contains("Usage:") && !all.contains("EAL common options"), "{all}");
        assert!(!all.lines().any(|line| line.starts_with("EAL: ")), "{all}");
        let said = "said: DPDK does not start: Invalid argument (os error 22): Invalid process type specified; check the";
        assert!(all.contains(said), "{all}");
        return;
    }
    let extra_args = vec!["--proc-type=seven".into()];
    let error = Eal::init(&EalConfig { extra_args, ..EalConfig::default() }).unwrap_err().to_string();
    assert!(error.ends_with("check the further EAL arguments (dpdk.eal_args)"), "{error}");
    assert!(!error.contains('\n'), "{error}");
    eprintln!("said: {error}");
}
