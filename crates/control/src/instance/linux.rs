//! The join to Linux as the API sees it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::UNIX_EPOCH;

use linerate_engine::host::LinuxView;
use linerate_router::punt::PuntClass;

use crate::show::linux::{Class, Fault, Fpm, Linux, Punt, Tap};

/// `show linux`. `name` says what an interface is called.
pub(super) fn linux(view: &LinuxView, name: impl Fn(usize) -> Option<String>) -> Linux {
    let status = view.status();
    let publication = status.publication;
    let fpm = status.fpm.map(|(state, counters)| Fpm {
        connected: state.connected,
        sessions: counters.sessions,
        connections_refused: counters.refused,
        messages: counters.messages,
        routes: state.routes,
        next_hops: state.objects,
        unusable: state.unusable,
        holding: state.holding,
        swept: state.swept,
        published_at: publication
            .at
            .and_then(|at| at.duration_since(UNIX_EPOCH).ok())
            .map(|d| d.as_secs_f64()),
        publish_last_seconds: publication.last.as_secs_f64(),
        publish_longest_seconds: publication.longest.as_secs_f64(),
    });
    let tap = |(index, tap): (usize, &std::sync::Arc<linerate_engine::host::TapCounters>)| {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        Some(Tap {
            interface: name(index)?,
            to_linux: read(&tap.to_linux),
            refused: read(&tap.refused),
            from_linux: read(&tap.from_linux),
            dropped: read(&tap.dropped),
        })
    };
    Linux {
        fpm,
        kernel_routes: status.kernel_routes,
        kernel_resyncs: status.resyncs,
        refused: status.refused.0,
        refused_because: status.refused.1,
        faults: status.faults.into_iter().map(|(what, count)| Fault { what, count }).collect(),
        taps: view.taps.iter().enumerate().filter_map(tap).collect(),
    }
}

/// `show punt`.
pub(super) fn punt(view: &LinuxView) -> Punt {
    let one = |class: &PuntClass| {
        let of = || view.punts.iter().map(|p| p.of(*class));
        Class {
            class: class.name().into(),
            explanation: class.explain().into(),
            rate: view.rates.0[*class as usize],
            packets: of().map(|c| c.packets.get()).sum(),
            bytes: of().map(|c| c.bytes.get()).sum(),
            policed: of().map(|c| c.policed.get()).sum(),
            queue_full: of().map(|c| c.queue_full.get()).sum(),
        }
    };
    Punt { classes: PuntClass::ALL.iter().map(one).collect() }
}
