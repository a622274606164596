//! The thread that changes routes: 10,000 a second, in batches as a routing daemon's connection hands them over.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use ipnet::IpNet;
use linerate_engine::instance::Instance;
use linerate_router::update::Updated;
use linerate_router::{RouteAction, Source};
use linerate_tables::fib::NextHopId;
use linerate_tables::prefix::Prefix;
use linerate_tester::ip::Ip;
use linerate_tester::table::{NEXT_HOPS, Routes};

use super::changes::{Change, Changes};
use crate::demo::plan;

/// Routes of a batch while the table is loaded: about what an FPM frame of 64 KB holds.
const LOAD: usize = 500;

/// How often it is looked whether to begin or to end.
const PAUSE: Duration = Duration::from_millis(1);

/// Tells the thread what to do; it tells what it does.
#[derive(Debug, Default)]
pub(super) struct Switch {
    /// Routes are to change.
    pub(super) on: AtomicBool,
    /// The thread is to end.
    pub(super) end: AtomicBool,
    /// Routes change, or may.
    pub(super) active: AtomicBool,
}

/// How fast.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Changes per second.
    pub(super) rate: u32,
    /// Changes of a batch.
    pub(super) batch: u32,
}

/// What the thread did.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Changes made.
    pub(super) changes: u64,
    /// Seconds in which changes were made.
    pub(super) seconds: f64,
    /// Microseconds that each batch took.
    pub(super) batches: Vec<f64>,
    /// What the router made of them.
    pub(super) updated: Updated,
}

/// Routes of a routing daemon in a running router.
pub(super) struct Learned {
    actions: Vec<Arc<RouteAction>>,
}

impl Learned {
    /// Actions by the next hops of the bench's network, for one family.
    pub(super) fn new<A: Ip>() -> Self {
        let gateway = |n| match A::BITS {
            32 => IpAddr::from(plan::gateway4(n)),
            _ => plan::gateway6(n).into(),
        };
        Learned { actions: (0..=NEXT_HOPS).map(|n| Arc::new(RouteAction::via(gateway(n)))).collect() }
    }

    fn change<A: Ip>(
        &self,
        prefix: Prefix<A>,
        to: Option<NextHopId>,
    ) -> Result<(IpNet, Option<Arc<RouteAction>>)> {
        let net = IpNet::new(prefix.first().to_ip(), prefix.len())?;
        Ok((net, to.and_then(|n| self.actions.get(n as usize).cloned())))
    }

    /// Loads a table; returns the seconds it took.
    pub(super) fn load<A: Ip>(&self, instance: &Instance, routes: &Routes<A>) -> Result<f64> {
        let begin = Instant::now();
        for batch in routes.chunks(LOAD) {
            let changes: Vec<_> =
                batch.iter().map(|(p, n)| self.change(*p, Some(*n))).collect::<Result<_>>()?;
            let updated = update(instance, &changes)?;
            ensure!(
                updated.added == batch.len(),
                "the router took {} of {} routes",
                updated.added,
                batch.len()
            );
        }
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Changes routes whenever `switch` is on, until it ends.
    pub(super) fn churn<A: Ip>(
        &self,
        instance: &Instance,
        changes: &mut Changes<A>,
        pace: Pace,
        switch: &Switch,
    ) -> Result<Done> {
        let mut done = Done::default();
        while !switch.end.load(Relaxed) {
            if !switch.on.load(Relaxed) {
                switch.active.store(false, Relaxed);
                std::thread::sleep(PAUSE);
                continue;
            }
            switch.active.store(true, Relaxed);
            self.period(instance, changes, pace, switch, &mut done)?;
        }
        switch.active.store(false, Relaxed);
        Ok(done)
    }

    /// Changes routes from one batch to the next, until the switch goes off.
    fn period<A: Ip>(
        &self,
        instance: &Instance,
        changes: &mut Changes<A>,
        pace: Pace,
        switch: &Switch,
        done: &mut Done,
    ) -> Result<()> {
        let begin = Instant::now();
        let between = Duration::from_secs(1).mul_f64(f64::from(pace.batch) / f64::from(pace.rate));
        let mut due = begin;
        while switch.on.load(Relaxed) && !switch.end.load(Relaxed) {
            let list: Vec<Change<A>> = (0..pace.batch).map(|_| changes.next()).collect();
            let batch: Vec<_> = list.iter().map(|(p, to)| self.change(*p, *to)).collect::<Result<_>>()?;
            let now = Instant::now();
            if let Some(early) = due.checked_duration_since(now) {
                std::thread::sleep(early);
            }
            let start = Instant::now();
            let updated = update(instance, &batch)?;
            done.batches.push(start.elapsed().as_secs_f64() * 1e6);
            done.changes += u64::from(pace.batch);
            add(&mut done.updated, updated);
            due += between;
        }
        done.seconds += begin.elapsed().as_secs_f64();
        Ok(())
    }
}

fn update(instance: &Instance, changes: &[(IpNet, Option<Arc<RouteAction>>)]) -> Result<Updated> {
    let updated = instance
        .with_router(|router, now| {
            router.update(now, linerate_pipeline::VRF_DEFAULT, Source::Learned, changes)
        })
        .ok_or_else(|| anyhow!("the instance has no router"))?;
    if let Some((prefix, error)) = updated.reasons.first() {
        return Err(anyhow!("{error}")).with_context(|| format!("route {prefix} was refused"));
    }
    Ok(updated)
}

fn add(all: &mut Updated, one: Updated) {
    all.added += one.added;
    all.replaced += one.replaced;
    all.removed += one.removed;
    all.unchanged += one.unchanged;
    all.refused += one.refused;
}
