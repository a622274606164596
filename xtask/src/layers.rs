//! The layer check: who may depend on whom, what pure crates may not name, where unsafe code may be, how long a file
//! may be.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cargo_metadata::{DependencyKind, MetadataCommand, Package};

/// A crate's place: which of our crates it may depend on, and whether it is pure.
struct Layer {
    name: &'static str,
    may_use: &'static [&'static str],
    pure: bool,
}

const LAYERS: &[Layer] = &[
    Layer { name: "wire", may_use: &[], pure: true },
    Layer { name: "tables", may_use: &["wire"], pure: true },
    Layer { name: "pipeline", may_use: &["wire", "tables"], pure: true },
    Layer { name: "router", may_use: &["wire", "tables", "pipeline"], pure: true },
    Layer { name: "tester", may_use: &["wire", "tables", "pipeline"], pure: true },
    Layer { name: "dpdk", may_use: &["pipeline"], pure: false },
    Layer { name: "linux", may_use: &["pipeline"], pure: false },
    Layer {
        name: "engine",
        may_use: &["wire", "tables", "pipeline", "router", "tester", "dpdk", "linux"],
        pure: false,
    },
    Layer {
        name: "control",
        may_use: &["wire", "tables", "pipeline", "router", "tester", "linux", "engine"],
        pure: false,
    },
];

/// Crates of ours outside the layers: the binary on top, the tests' allocator, and this tool.
const TOP: &[&str] = &["linerate", "linerate-heap-guard", "xtask"];

/// What a pure crate may not name: the outside world comes in by parameters.
const IMPURE: &[&str] = &[
    "std::net::Tcp",
    "std::net::Udp",
    "std::thread",
    "std::fs",
    "std::env",
    "std::time::Instant",
    "SystemTime",
    "Instant::now",
];

/// Crates that no pure crate may depend on.
const IMPURE_CRATES: &[&str] = &["tokio", "nix", "libc", "axum", "hyper", "socket2", "rustix"];

/// Files with unsafe code: DPDK's bindings and the tables' vector kernels.
const UNSAFE_ALLOWED: &[&str] = &[
    "crates/dpdk/",
    "crates/heap-guard/",
    "crates/tables/src/fib/simd",
    "crates/tables/src/classifier/simd",
];

/// The longest a source file may be.
const MAX_LINES: usize = 800;

/// Runs all checks; the error lists every finding.
pub(crate) fn check() -> Result<()> {
    let metadata = MetadataCommand::new().no_deps().exec().context("cargo metadata")?;
    let root = metadata.workspace_root.clone().into_std_path_buf();
    let packages: BTreeMap<&str, &Package> = metadata.packages.iter().map(|p| (p.name.as_str(), p)).collect();
    let mut findings = Vec::new();
    for name in packages.keys() {
        let short = name.strip_prefix("linerate-").unwrap_or(name);
        if !TOP.contains(name) && !LAYERS.iter().any(|l| l.name == short) {
            findings.push(format!("crate {name} has no layer: give it one in xtask/src/layers.rs"));
        }
    }
    for layer in LAYERS {
        if let Some(package) = packages.get(format!("linerate-{}", layer.name).as_str()) {
            dependencies(layer, package, &mut findings);
            sources(layer, &root, &mut findings)?;
        }
    }
    for top in TOP {
        lengths(
            &root,
            &rust_files(&root.join(if *top == "xtask" { "xtask" } else { "crates/linerate" }))?,
            &mut findings,
        )?;
    }
    if findings.is_empty() {
        return Ok(());
    }
    bail!("{} finding(s)\n  {}", findings.len(), findings.join("\n  "))
}

fn dependencies(layer: &Layer, package: &Package, findings: &mut Vec<String>) {
    // What tests use is free: an independent oracle may come from anywhere.
    for d in package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development) {
        match d.name.strip_prefix("linerate-") {
            Some(ours) if !layer.may_use.contains(&ours) => {
                findings.push(format!("{} must not depend on {ours}", layer.name));
            }
            None if layer.pure && IMPURE_CRATES.contains(&d.name.as_str()) => {
                findings.push(format!("{} is pure and must not depend on {}", layer.name, d.name));
            }
            _ => {}
        }
    }
}

fn sources(layer: &Layer, root: &Path, findings: &mut Vec<String>) -> Result<()> {
    let files = rust_files(&root.join("crates").join(layer.name))?;
    lengths(root, &files, findings)?;
    for file in files {
        let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        let text = fs::read_to_string(&file)?;
        let production = text.split("#[cfg(test)]").next().unwrap_or_default();
        let code = || production.lines().filter(|l| !l.trim_start().starts_with("//"));
        let in_src = shown.contains("/src/")
            && !shown.ends_with("tests.rs")
            && !shown.ends_with("testing.rs")
            && !shown.contains("/tests/");
        if layer.pure && in_src {
            for word in IMPURE.iter().filter(|w| code().any(|l| l.contains(*w))) {
                findings.push(format!("{shown} is in a pure crate and names {word}"));
            }
        }
        let has_unsafe = code().any(|l| l.contains("unsafe ") || l.contains("allow(unsafe_code"));
        if has_unsafe && !UNSAFE_ALLOWED.iter().any(|a| shown.starts_with(a)) {
            findings.push(format!("{shown} has unsafe code"));
        }
    }
    Ok(())
}

fn lengths(root: &Path, files: &[PathBuf], findings: &mut Vec<String>) -> Result<()> {
    for file in files {
        let lines = fs::read_to_string(file)?.lines().count();
        if lines > MAX_LINES {
            let shown = file.strip_prefix(root).unwrap_or(file).display();
            findings.push(format!("{shown} has {lines} lines; {MAX_LINES} is the most"));
        }
    }
    Ok(())
}

fn rust_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
