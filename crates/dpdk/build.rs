//! Compiles the C shims against the installed DPDK and links its shared libraries.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=peers_shim.c");
    if std::env::var_os("CARGO_FEATURE_PEERS").is_some() {
        let dpdk = pkg_config::Config::new().cargo_metadata(false).probe("libdpdk")?;
        let mut shim = cc::Build::new();
        // DPDK's own flags ask for an older CPU than the rest of this workspace is built for: only includes are taken.
        shim.file("peers_shim.c").includes(&dpdk.include_paths).flag("-march=x86-64-v3").warnings(true);
        shim.compile("linerate_peers_shim");
        for path in &dpdk.link_paths {
            println!("cargo::rustc-link-search=native={}", path.display());
        }
        for lib in ["rte_eal", "rte_fib", "rte_rib", "rte_mempool"] {
            println!("cargo::rustc-link-lib=dylib={lib}");
        }
    }
    Ok(())
}
