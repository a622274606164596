//! What bare reception and transmission cost: packets straight from each port to the other, nothing in between.
//!
//! The same work as `dpdk-testpmd` in `io` mode, so that the two can be compared: this crate's own cost per packet is
//! the difference. Prints one line per half second of the forwarding thread's CPU time.
//!
//! ```text
//! io_floor SECONDS CPU MiB DEVICE DEVICE
//! ```

use std::time::Duration;

use linerate_dpdk::{
    Eal, EalConfig, Mbuf, Memory, Pool, PoolConfig, Port, PortConfig, register_worker_thread,
};
use linerate_pipeline::io::{RxQueue as _, TxQueue as _};
use linerate_pipeline::{Batch, Packet};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, seconds, cpu, mb, a, b] = &args[..] else {
        return Err("usage: io_floor SECONDS CPU MiB DEVICE DEVICE".into());
    };
    let (seconds, cpu): (u64, usize) = (seconds.parse()?, cpu.parse()?);
    let mb = mb.parse()?;
    let huge = std::env::var_os("HUGE").is_some();
    let memory = if huge { Memory::Hugepages { mb } } else { Memory::NoHuge { mb } };
    let extra_args =
        std::env::var("EAL_ARGS").unwrap_or_default().split_whitespace().map(String::from).collect();
    let eal = Eal::init(&EalConfig { memory, extra_args, telemetry: true, ..EalConfig::default() })?;
    let pool = Pool::create(eal, &PoolConfig { size: 16_383 * 4, ..PoolConfig::default() })?;
    let open = |device: &str| Port::open(eal, device, &PortConfig::default(), pool)?.start();
    let ((_a, arx, atx), (_b, brx, btx)) = (open(a)?, open(b)?);
    std::thread::spawn(move || forward(seconds, cpu, arx.into_iter().chain(brx), btx.into_iter().chain(atx)))
        .join()
        .map_err(|_| "the forwarding thread panicked")?
        .map_err(|error| error.to_string())?;
    drop((_a, _b));
    eal.cleanup()?;
    Ok(())
}

#[allow(clippy::print_stdout, reason = "the result")]
fn forward(
    seconds: u64,
    cpu: usize,
    rx: impl Iterator<Item = linerate_dpdk::RxQueue>,
    tx: impl Iterator<Item = linerate_dpdk::TxQueue>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &set)?;
    let _worker = register_worker_thread()?;
    let mut lanes: Vec<_> = rx.zip(tx).collect();
    let mut batch: Batch<Mbuf> = Batch::new();
    let now = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
    let (start, mut last, mut packets) = (now()?, now()?, 0u64);
    loop {
        for _ in 0..4096 {
            for (rx, tx) in &mut lanes {
                packets += rx.rx(&mut batch) as u64;
                tx.tx(&mut batch);
                if !batch.is_empty() {
                    Packet::free_bulk(&mut batch);
                }
            }
        }
        let time = now()?;
        if time - last >= Duration::from_millis(500) {
            println!("{:.3} Mpps", packets as f64 / (time - last).as_secs_f64() / 1e6);
            (last, packets) = (time, 0);
            if time - start >= Duration::from_secs(seconds) {
                return Ok(());
            }
        }
    }
}
