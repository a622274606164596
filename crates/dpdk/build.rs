//! Generates the DPDK bindings, compiles the shim around DPDK's inline functions and names the libraries to link.

use std::path::PathBuf;

/// The libraries this crate calls. Drivers are not among them: EAL loads those from its plugin directory at start.
/// `rte_net_ring` is the exception, for `rte_eth_from_rings`; the file is the same one the plugin directory holds, so
/// the dynamic linker loads it once.
const LIBS: &[&str] = &["rte_eal", "rte_mempool", "rte_mbuf", "rte_ring", "rte_ethdev", "rte_net_ring"];

/// What the benchmarks' peers need besides.
const PEER_LIBS: &[&str] = &["rte_acl", "rte_fib", "rte_rib"];

fn main() {
    for file in ["build.rs", "peers_shim.c", "shim/shim.c", "shim/shim.h", "shim/wrapper.h"] {
        println!("cargo::rerun-if-changed={file}");
    }
    if let Err(error) = build() {
        println!("cargo::error={error}");
    }
}

fn build() -> Result<(), String> {
    let dpdk =
        pkg_config::Config::new().atleast_version("22.11").cargo_metadata(false).probe("libdpdk").map_err(|_| {
            "DPDK 22.11 or later was not found by pkg-config: install the packages libdpdk-dev and pkg-config"
        })?;
    for path in &dpdk.link_paths {
        println!("cargo::rustc-link-search=native={}", path.display());
    }
    let peers = std::env::var_os("CARGO_FEATURE_PEERS").is_some();
    for lib in LIBS.iter().chain(PEER_LIBS.iter().filter(|_| peers)) {
        println!("cargo::rustc-link-lib=dylib={lib}");
    }

    // The flags that libdpdk.pc asks for; its -march is a baseline that x86-64-v3 (see .cargo/config.toml) includes.
    let mut flags: Vec<String> = vec!["-include".into(), "rte_config.h".into(), "-march=x86-64-v3".into()];
    flags.extend(dpdk.include_paths.iter().map(|path| format!("-I{}", path.display())));
    compile("shim/shim.c", "linerate_dpdk_shim", &flags)?;
    if peers {
        compile("peers_shim.c", "linerate_peers_shim", &flags)?;
    }
    bind(&flags)
}

/// Compiles a C file into a library of its own.
fn compile(file: &str, name: &str, flags: &[String]) -> Result<(), String> {
    let mut shim = cc::Build::new();
    shim.file(file).opt_level(3).warnings(true).extra_warnings(false);
    // DPDK's headers warn about packed members and experimental functions; neither is ours to fix.
    shim.flag("-Wno-address-of-packed-member").flag("-Wno-deprecated-declarations");
    for flag in flags {
        shim.flag(flag);
    }
    shim.try_compile(name).map_err(|error| format!("{file} does not compile: {error}"))
}

/// Generates `bindings.rs` for the functions and types that this crate uses, and nothing else.
fn bind(flags: &[String]) -> Result<(), String> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: run this through cargo")?);
    bindgen::Builder::default()
        .header("shim/wrapper.h")
        .clang_args(flags)
        .allowlist_function("lr_.*")
        .allowlist_var("lr_.*")
        .allowlist_function("rte_eal_(cleanup|get_runtime_dir)")
        .allowlist_function("rte_(version|get_tsc_hz|thread_register|thread_unregister)")
        .allowlist_function("rte_dev_(probe|remove)")
        .allowlist_function("rte_pktmbuf_(pool_create|free_bulk|copy)")
        .allowlist_function("rte_mempool_(avail_count|free)")
        .allowlist_function("rte_ring_(create|free)")
        .allowlist_function("rte_eth_from_rings")
        .allowlist_function("rte_eth_dev_(info_get|configure|start|stop|close|is_valid_port|socket_id)")
        .allowlist_function("rte_eth_dev_(get_port_by_name|adjust_nb_rx_tx_desc|get_mtu|set_mtu)")
        .allowlist_function(
            "rte_eth_dev_(default_mac_addr_set|mac_addr_add|mac_addr_remove|set_mc_addr_list)",
        )
        .allowlist_function("rte_eth_dev_(rss_hash_update|rss_reta_update|rss_reta_query)")
        .allowlist_function("rte_eth_(rx|tx)_queue_setup")
        .allowlist_function("rte_eth_(promiscuous|allmulticast)_(enable|disable|get)")
        .allowlist_function(
            "rte_eth_(macaddr_get|stats_get|stats_reset|xstats_get|xstats_get_names|xstats_reset)",
        )
        .allowlist_type("rte_eth_rss_reta_entry64")
        // No code copies these packed headers; opaque, they satisfy rustc's rule on packed and aligned types.
        .opaque_type("rte_arp_(hdr|ipv4)")
        .opaque_type("rte_gtp_psc_generic_hdr")
        .opaque_type("rte_l2tpv2_combined_msg_hdr")
        .layout_tests(false)
        .generate_comments(false)
        .prepend_enum_name(false)
        .use_core()
        .generate()
        .map_err(|error| format!("no bindings from DPDK's headers (is libclang installed?): {error}"))?
        .write_to_file(out.join("bindings.rs"))
        .map_err(|error| format!("bindings.rs cannot be written: {error}"))
}
