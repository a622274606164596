//! `[linux]`: taps, the kernel's routes, FRR.

use std::net::SocketAddr;
use std::time::Duration;

use linerate_engine::desired::LinuxSpec;
use linerate_router::punt::{PuntClass, PuntRates};

use super::decode::{Item, Source};

/// The longest name of an interface in Linux.
const MAX_NAME: usize = 15;

pub(super) fn read(item: Option<Item<'_>>, source: &Source<'_>) -> Option<LinuxSpec> {
    let mut s = item?.section("a table [linux]")?;
    let mut spec = LinuxSpec::default();
    if let Some(name) = s.take("namespace").and_then(|i| i.string("a network namespace, by name or path")) {
        let path = name.value.starts_with('/');
        if name.value.is_empty() || name.value.contains('\0') || (!path && name.value.contains('/')) {
            name.problem(source, "expected a name as `ip netns` lists it, or an absolute path");
        }
        spec.namespace = Some(name.value);
    }
    spec.table = s.number("table", 1..=u32::MAX, "the number of a routing table", spec.table);
    spec.fpm = s
        .take("fpm")
        .and_then(|i| i.parse::<SocketAddr>("an address and port such as 127.0.0.1:2620"))
        .map(|fpm| {
            if !fpm.value.ip().is_loopback() {
                fpm.warning(
                    source,
                    "whoever reaches this address can set all routes: FPM has no authentication",
                );
            }
            fpm.value
        });
    let hold = s.number("hold_seconds", 1..=86_400, "seconds", spec.hold.as_secs() as u32);
    spec.hold = Duration::from_secs(hold.into());
    if let Some(mut punt) = s.take("punt").and_then(|i| i.section("a table [linux.punt]")) {
        spec.punt = PuntRates(std::array::from_fn(|at| {
            let class = PuntClass::ALL[at];
            punt.number(class.name(), 0..=10_000_000, "packets per second and worker", class.default_rate())
        }));
        punt.finish();
    }
    s.finish();
    Some(spec)
}

/// Whether a tap can have the name of an interface.
pub(super) fn can_name_a_tap(name: &str) -> bool {
    name.len() <= MAX_NAME
}
