//! What taps need of the kernel's settings. Written in the network namespace of the calling thread.

use std::path::PathBuf;
use std::sync::Once;

use tracing::warn;

/// For the namespace.
pub(super) fn namespace() {
    // Addresses learned by the data plane outnumber what the kernel would keep.
    for family in ["ipv4", "ipv6"] {
        set(&format!("{family}/neigh/default/gc_thresh3"), "65536");
        set(&format!("{family}/neigh/default/gc_thresh2"), "32768");
    }
}

/// For one tap, by its name.
pub(super) fn interface(name: &str) {
    for (key, value) in [
        // What is punted came in by this interface whatever Linux's routes say; the data plane validates sources.
        ("ipv4/conf", "rp_filter=0"),
        // Answers for addresses of other interfaces are the data plane's business as well.
        ("ipv4/conf", "arp_ignore=1"),
        ("ipv4/conf", "accept_redirects=0"),
        ("ipv4/conf", "send_redirects=0"),
        // Routers do not configure themselves by what other routers say.
        ("ipv6/conf", "accept_ra=0"),
        ("ipv6/conf", "accept_redirects=0"),
        // Addresses survive that the interface is set down and up.
        ("ipv6/conf", "keep_addr_on_down=1"),
    ] {
        if let Some((file, value)) = value.split_once('=') {
            set(&format!("{key}/{name}/{file}"), value);
        }
    }
}

fn set(path: &str, value: &str) {
    static WARNED: Once = Once::new();
    let full: PathBuf = ["/proc/sys/net", path].iter().collect();
    // Some are not there per namespace, and containers have them read-only: that is no reason not to go on.
    if let Err(error) = std::fs::write(&full, value)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        WARNED.call_once(|| {
            warn!(
                "cannot set net/{path} to {value}: {error}; taps have the system's settings (in a container, give it \
                 write access to /proc/sys/net)"
            );
        });
    }
}
