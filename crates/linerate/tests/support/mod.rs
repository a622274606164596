//! Running the binary: a configuration in a directory of its own, a process that is ended whatever happens.
#![allow(dead_code, reason = "each test program uses its part")]

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The binary under test.
pub fn linerate() -> Command {
    Command::new(env!("CARGO_BIN_EXE_linerate"))
}

/// CPUs this process may use.
pub fn cpus() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).expect("affinity");
    (0..CpuSet::count()).filter(|c| set.is_set(*c).unwrap_or(false)).collect()
}

/// A directory with a configuration in it.
pub struct Lab {
    pub dir: tempfile::TempDir,
    pub prefix: String,
}

impl Lab {
    /// `config` follows the `[dpdk]`, `[api]` and `[[worker]]` sections that every test shares.
    pub fn new(name: &str, dpdk: &str, config: &str) -> Self {
        let dir = tempfile::tempdir().expect("directory");
        let prefix = format!("lr-test-{name}-{}", std::process::id());
        let lab = Lab { dir, prefix };
        let cpus = cpus();
        let worker = |cpu: usize| format!("[[worker]]\ncpu = {cpu}\n");
        let workers: String = cpus.iter().take(2).map(|c| worker(*c)).collect();
        let text = format!(
            "[dpdk]\nfile_prefix = \"{}\"\ncontrol_cpu = {}\n{dpdk}\n[api]\nsocket = \"{}\"\n{workers}\n{config}",
            lab.prefix,
            cpus[0],
            lab.socket().display()
        );
        std::fs::write(lab.config(), text).expect("configuration");
        lab
    }

    pub fn config(&self) -> PathBuf {
        self.dir.path().join("t.toml")
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("run/api.sock")
    }

    /// Where DPDK keeps its files of this instance.
    pub fn runtime_dirs(&self) -> Vec<PathBuf> {
        let user = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let roots = [Some(PathBuf::from("/var/run")), user, Some(PathBuf::from("/tmp"))];
        roots.into_iter().flatten().map(|r| r.join("dpdk").join(&self.prefix)).collect()
    }

    /// Hugepage files of this instance.
    pub fn hugepages(&self) -> Vec<PathBuf> {
        let all = std::fs::read_dir("/dev/hugepages").into_iter().flatten().flatten().map(|e| e.path());
        all.filter(|p| p.to_string_lossy().contains(&self.prefix)).collect()
    }

    /// Runs a command to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        linerate().args(args).output().expect("linerate runs")
    }

    /// A client command.
    pub fn ask(&self, args: &[&str]) -> Output {
        let socket = self.socket();
        linerate().args(args).arg("--socket").arg(socket).output().expect("linerate runs")
    }

    /// A client command that succeeds, as JSON.
    pub fn json(&self, args: &[&str]) -> serde_json::Value {
        let out = self.ask(&[args, &["--json"]].concat());
        assert!(out.status.success(), "{args:?}: {}", text(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {}", text(&out.stdout)))
    }

    /// Starts an instance and waits until it says that it is ready.
    pub fn start(&self) -> Running {
        let notify = self.dir.path().join("notify");
        let _ = std::fs::remove_file(&notify);
        let ready = UnixDatagram::bind(&notify).expect("notify socket");
        ready.set_read_timeout(Some(Duration::from_millis(100))).expect("timeout");
        let log = std::fs::File::create(self.dir.path().join("log")).expect("log");
        let child = linerate()
            .arg("run")
            .arg(self.config())
            .env("NOTIFY_SOCKET", &notify)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("linerate runs");
        let mut running = Running { child, log: self.dir.path().join("log") };
        let end = Instant::now() + Duration::from_secs(60);
        let mut buffer = [0; 256];
        loop {
            if let Ok(n) = ready.recv(&mut buffer)
                && buffer[..n].starts_with(b"READY=1")
            {
                return running;
            }
            let ended = running.child.try_wait().expect("status");
            assert!(ended.is_none() && Instant::now() < end, "not ready: {ended:?}\n{}", running.log());
        }
    }
}

/// A running instance, killed when dropped.
pub struct Running {
    pub child: Child,
    log: PathBuf,
}

impl Running {
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("signal");
    }

    /// Waits for the end; the exit code.
    pub fn wait(&mut self) -> Option<i32> {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.child.try_wait().expect("status") {
                return status.code();
            }
            assert!(Instant::now() < end, "it does not end\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn exists(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}
