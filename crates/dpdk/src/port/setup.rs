//! Configuration calls on an open device.

use std::mem::MaybeUninit;

use super::config::{Note, PortConfig, Rss};
use super::device::{Inner, PortInfo, announced_mtu};
use super::error::PortError;
use super::opening::{self, quote};
use crate::errno::{Errno, check};
use crate::ffi;
use crate::log;
use crate::pool::{MAX_FRAME, Pool};

/// Ethernet header and two VLAN tags: what a frame has in front of the MTU's bytes.
const L2_MOST: usize = 22;

/// Smallest MTU of IPv4 (RFC 791).
const MIN_MTU: u16 = 68;

/// Configures the device and its queues. Returns what it is, what it does otherwise, and whether packets of several
/// segments must be made one before sending.
pub(super) fn configure(
    inner: &Inner,
    config: &PortConfig,
    pool: &Pool,
) -> Result<(PortInfo, Vec<Note>, bool), PortError> {
    let (info, raw) = (inner.info()?, inner.raw_info()?);
    check_queues(inner, config, &info)?;
    check_mtu(&inner.name, config.mtu, &info)?;
    let mut notes = Vec::new();
    let driver = || inner.driver.clone();

    let mut conf: ffi::rte_eth_conf = zeroed();
    conf.rxmode.mtu = config.mtu.min(announced_mtu(&raw)).into();
    if usize::from(config.mtu) + L2_MOST > pool.data_room() {
        if info.scatter {
            // SAFETY: a constant of the shim.
            conf.rxmode.offloads |= unsafe { ffi::lr_rx_offload_scatter };
            notes.push(Note::Scatter { buffer: pool.data_room() });
        } else {
            notes.push(Note::NoScatter { buffer: pool.data_room(), driver: driver() });
        }
    }
    if info.multi_segment {
        // SAFETY: a constant of the shim.
        conf.txmode.offloads |= unsafe { ffi::lr_tx_offload_multi_segs } & raw.tx_offload_capa;
    } else {
        notes.push(Note::Linearise { driver: driver() });
    }
    // The driver copies the key during the call.
    let mut key = config.rss.as_ref().and_then(|rss| rss.key.clone());
    if config.rx_queues > 1 {
        match &config.rss {
            Some(rss) if info.has_rss => {
                check_key(inner, rss, &info)?;
                // SAFETY: a constant of the shim.
                conf.rxmode.mq_mode = unsafe { ffi::lr_mq_rx_rss };
                conf.rx_adv_conf.rss_conf.rss_hf = hash_types(rss) & raw.flow_type_rss_offloads;
                if let Some(key) = &mut key {
                    conf.rx_adv_conf.rss_conf.rss_key = key.as_mut_ptr();
                    conf.rx_adv_conf.rss_conf.rss_key_len = key.len() as u8;
                }
            }
            Some(_) => notes.push(Note::NoRss { driver: driver() }),
            None => {}
        }
    }
    // SAFETY: the port is open and stopped; `conf` and `key` live during the call.
    let code =
        unsafe { ffi::rte_eth_dev_configure(inner.id, config.rx_queues, config.tx_queues, &raw const conf) };
    inner.done("this configuration", "rte_eth_dev_configure", code)?;
    set_up_queues(inner, config, pool, &conf, &raw, &mut notes)?;
    let linearise = !info.multi_segment;
    Ok((info, notes, linearise))
}

/// What many devices do only while running. Failures are notes: the port works without.
pub(super) fn after_start(inner: &Inner, config: &PortConfig, notes: &mut Vec<Note>) {
    let mut tolerate = |what, result: Result<(), PortError>| {
        let note = Note::Unsupported { what, driver: inner.driver.clone() };
        if result.is_err() && !notes.contains(&note) {
            notes.push(note);
        }
    };
    if let Some(mac) = config.mac {
        tolerate("setting the MAC address", set_mac(inner, mac));
    }
    // Configuring told DPDK the MTU; devices of the kernel hear of it only this way. Others may lack the call, or
    // refuse it while running, and are right already.
    let set = set_mtu(inner, config.mtu);
    let differs = inner.carries.is_none() && mtu(inner).is_ok_and(|now| now != config.mtu);
    if differs || inner.driver == "net_af_packet" && set.is_err() {
        tolerate("setting the MTU", set);
    }
    tolerate("promiscuous mode", set_promiscuous(inner, config.promiscuous));
    tolerate("all-multicast mode", set_all_multicast(inner, config.all_multicast));
}

pub(super) fn check_mtu(port: &str, mtu: u16, info: &PortInfo) -> Result<(), PortError> {
    let (low, high) = (info.min_mtu.max(MIN_MTU), info.max_mtu.min(MAX_FRAME as u16));
    if (low..=high).contains(&mtu) {
        return Ok(());
    }
    let what = format!("MTU {mtu} is out of range: {} takes {low} to {high}", info.driver);
    Err(PortError::Config { port: port.into(), what })
}

pub(super) fn mac(inner: &Inner) -> Result<[u8; 6], PortError> {
    let mut mac = ffi::rte_ether_addr { addr_bytes: [0; 6] };
    // SAFETY: the port is open; `mac` lives during the call.
    let code = unsafe { ffi::rte_eth_macaddr_get(inner.id, &raw mut mac) };
    inner.done("reading the MAC address", "rte_eth_macaddr_get", code)?;
    Ok(mac.addr_bytes)
}

pub(super) fn set_mac(inner: &Inner, mac: [u8; 6]) -> Result<(), PortError> {
    check_unicast(inner, mac)?;
    let mut mac = ffi::rte_ether_addr { addr_bytes: mac };
    // SAFETY: the port is open; `mac` lives during the call.
    let code = unsafe { ffi::rte_eth_dev_default_mac_addr_set(inner.id, &raw mut mac) };
    inner.done("setting the MAC address", "rte_eth_dev_default_mac_addr_set", code)
}

pub(super) fn add_mac(inner: &Inner, mac: [u8; 6]) -> Result<(), PortError> {
    check_unicast(inner, mac)?;
    let mut mac = ffi::rte_ether_addr { addr_bytes: mac };
    // SAFETY: the port is open; `mac` lives during the call.
    let code = unsafe { ffi::rte_eth_dev_mac_addr_add(inner.id, &raw mut mac, 0) };
    inner.done("further MAC addresses", "rte_eth_dev_mac_addr_add", code)
}

pub(super) fn remove_mac(inner: &Inner, mac: [u8; 6]) -> Result<(), PortError> {
    let mut mac = ffi::rte_ether_addr { addr_bytes: mac };
    // SAFETY: the port is open; `mac` lives during the call.
    let code = unsafe { ffi::rte_eth_dev_mac_addr_remove(inner.id, &raw mut mac) };
    inner.done("further MAC addresses", "rte_eth_dev_mac_addr_remove", code)
}

pub(super) fn set_multicast(inner: &Inner, macs: &[[u8; 6]]) -> Result<(), PortError> {
    let mut list: Vec<_> = macs.iter().map(|&addr_bytes| ffi::rte_ether_addr { addr_bytes }).collect();
    // SAFETY: the port is open; the list lives during the call.
    let code = unsafe { ffi::rte_eth_dev_set_mc_addr_list(inner.id, list.as_mut_ptr(), list.len() as u32) };
    inner.done("multicast MAC addresses", "rte_eth_dev_set_mc_addr_list", code)
}

pub(super) fn set_promiscuous(inner: &Inner, on: bool) -> Result<(), PortError> {
    // SAFETY: the port is open.
    let code = unsafe {
        if on {
            ffi::rte_eth_promiscuous_enable(inner.id)
        } else {
            ffi::rte_eth_promiscuous_disable(inner.id)
        }
    };
    inner.done("promiscuous mode", "rte_eth_promiscuous_enable", code)
}

pub(super) fn set_all_multicast(inner: &Inner, on: bool) -> Result<(), PortError> {
    // SAFETY: the port is open.
    let code = unsafe {
        if on {
            ffi::rte_eth_allmulticast_enable(inner.id)
        } else {
            ffi::rte_eth_allmulticast_disable(inner.id)
        }
    };
    inner.done("all-multicast mode", "rte_eth_allmulticast_enable", code)
}

pub(super) fn mtu(inner: &Inner) -> Result<u16, PortError> {
    let mut mtu = 0;
    // SAFETY: the port is open; `mtu` lives during the call.
    let code = unsafe { ffi::rte_eth_dev_get_mtu(inner.id, &raw mut mtu) };
    inner.done("reading the MTU", "rte_eth_dev_get_mtu", code)?;
    Ok(mtu)
}

pub(super) fn set_mtu(inner: &Inner, mtu: u16) -> Result<(), PortError> {
    // DPDK lets no MTU above the announced one through to the driver.
    if inner.carries.is_some() && mtu > announced_mtu(&inner.raw_info()?) {
        return match &inner.interface {
            Some(interface) => opening::set_linux_mtu(&inner.name, interface, mtu),
            None => Ok(()),
        };
    }
    // SAFETY: the port is open.
    inner.done("setting the MTU", "rte_eth_dev_set_mtu", unsafe { ffi::rte_eth_dev_set_mtu(inner.id, mtu) })
}

pub(super) fn set_reta(
    inner: &Inner,
    info: &PortInfo,
    rx_queues: u16,
    queues: &[u16],
) -> Result<(), PortError> {
    if let Some(bad) = queues.iter().find(|&&queue| queue >= rx_queues) {
        let what = format!("the RSS table names queue {bad}, but there are {rx_queues}");
        return Err(PortError::Config { port: inner.name.clone(), what });
    }
    let mut table = reta_table(inner, info)?;
    for (i, &queue) in (0..usize::from(info.reta_size)).zip(queues.iter().cycle()) {
        table[i / 64].reta[i % 64] = queue;
    }
    // SAFETY: the port is open; the table has the device's size.
    let code = unsafe { ffi::rte_eth_dev_rss_reta_update(inner.id, table.as_mut_ptr(), info.reta_size) };
    inner.done("changing the RSS table", "rte_eth_dev_rss_reta_update", code)
}

pub(super) fn reta(inner: &Inner, info: &PortInfo) -> Result<Vec<u16>, PortError> {
    let mut table = reta_table(inner, info)?;
    // SAFETY: the port is open; the table has the device's size.
    let code = unsafe { ffi::rte_eth_dev_rss_reta_query(inner.id, table.as_mut_ptr(), info.reta_size) };
    inner.done("reading the RSS table", "rte_eth_dev_rss_reta_query", code)?;
    Ok((0..usize::from(info.reta_size)).map(|i| table[i / 64].reta[i % 64]).collect())
}

fn reta_table(inner: &Inner, info: &PortInfo) -> Result<Vec<ffi::rte_eth_rss_reta_entry64>, PortError> {
    if info.reta_size == 0 {
        return Err(PortError::Unsupported {
            port: inner.name.clone(),
            what: "an RSS redirection table",
            driver: inner.driver.clone(),
        });
    }
    let groups = usize::from(info.reta_size).div_ceil(64);
    Ok(vec![ffi::rte_eth_rss_reta_entry64 { mask: u64::MAX, reta: [0; 64] }; groups])
}

fn set_up_queues(
    inner: &Inner,
    config: &PortConfig,
    pool: &Pool,
    conf: &ffi::rte_eth_conf,
    raw: &ffi::rte_eth_dev_info,
    notes: &mut Vec<Note>,
) -> Result<(), PortError> {
    let (mut rx, mut tx) = (config.rx_descriptors, config.tx_descriptors);
    // SAFETY: the port is open; both numbers live during the call.
    let code = unsafe { ffi::rte_eth_dev_adjust_nb_rx_tx_desc(inner.id, &raw mut rx, &raw mut tx) };
    inner.done("this number of descriptors", "rte_eth_dev_adjust_nb_rx_tx_desc", code)?;
    for (direction, asked, used) in
        [("receive", config.rx_descriptors, rx), ("transmit", config.tx_descriptors, tx)]
    {
        if asked != used {
            notes.push(Note::Descriptors { direction, asked, used });
        }
    }
    // SAFETY: the port is open. SOCKET_ID_ANY is -1 as an unsigned number.
    let socket = unsafe { ffi::rte_eth_dev_socket_id(inner.id) } as u32;
    let (mut rx_conf, mut tx_conf) = (raw.default_rxconf, raw.default_txconf);
    (rx_conf.offloads, tx_conf.offloads) = (conf.rxmode.offloads, conf.txmode.offloads);
    for queue in 0..config.rx_queues {
        let mark = log::mark();
        // SAFETY: the port is configured and stopped; the pool lives for ever.
        let code = unsafe {
            ffi::rte_eth_rx_queue_setup(inner.id, queue, rx, socket, &raw const rx_conf, pool.raw())
        };
        check(code).map_err(|errno| rx_queue_error(inner, errno, pool, &log::since(mark)))?;
    }
    for queue in 0..config.tx_queues {
        // SAFETY: the port is configured and stopped.
        let code = unsafe { ffi::rte_eth_tx_queue_setup(inner.id, queue, tx, socket, &raw const tx_conf) };
        inner.done("this transmit queue", "rte_eth_tx_queue_setup", code)?;
    }
    Ok(())
}

fn rx_queue_error(inner: &Inner, errno: Errno, pool: &Pool, log: &str) -> PortError {
    // net_pcap with infinite_rx=1 holds every frame of its file in a buffer, for each queue.
    let few_buffers = log.to_ascii_lowercase().contains("not enough mbufs");
    // AF_PACKET receives a frame into one buffer.
    let small_buffers = log.to_ascii_lowercase().contains("will not fit in mbuf");
    let what = match errno.0 {
        _ if small_buffers => format!(
            "its frames do not fit into the {} bytes of a packet buffer: raise buffer_size, or lower the device's \
             framesz{}",
            pool.data_room(),
            quote(log)
        ),
        _ if few_buffers => format!(
            "a receive queue needs more packet buffers than the {} of pool '{}': raise packet_buffers{}",
            pool.size(),
            pool.name(),
            quote(log)
        ),
        nix::libc::ENOMEM | nix::libc::ENOSPC => format!(
            "no memory for a receive queue: give DPDK more memory or pool '{}' more buffers{}",
            pool.name(),
            quote(log)
        ),
        _ => format!("a receive queue cannot be set up: {errno}{}", quote(log)),
    };
    PortError::Config { port: inner.name.clone(), what }
}

fn check_queues(inner: &Inner, config: &PortConfig, info: &PortInfo) -> Result<(), PortError> {
    for (direction, asked, most) in [
        ("receive", config.rx_queues, info.max_rx_queues),
        ("transmit", config.tx_queues, info.max_tx_queues),
    ] {
        if asked == 0 || asked > most {
            let what = format!("{asked} {direction} queues asked for: {} takes 1 to {most}", info.driver);
            return Err(PortError::Config { port: inner.name.clone(), what });
        }
    }
    Ok(())
}

fn check_key(inner: &Inner, rss: &Rss, info: &PortInfo) -> Result<(), PortError> {
    let wanted = usize::from(if info.rss_key_len == 0 { 40 } else { info.rss_key_len });
    match &rss.key {
        Some(key) if key.len() != wanted => Err(PortError::Config {
            port: inner.name.clone(),
            what: format!("the RSS key has {} bytes: {} takes {wanted}", key.len(), info.driver),
        }),
        _ => Ok(()),
    }
}

fn check_unicast(inner: &Inner, mac: [u8; 6]) -> Result<(), PortError> {
    if mac[0] & 1 == 0 && mac != [0; 6] {
        return Ok(());
    }
    let text: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    let what = format!("{} is not a unicast MAC address", text.join(":"));
    Err(PortError::Config { port: inner.name.clone(), what })
}

fn hash_types(rss: &Rss) -> u64 {
    // SAFETY: constants of the shim.
    let bits = unsafe {
        [
            (rss.ip, ffi::lr_rss_ip),
            (rss.tcp, ffi::lr_rss_tcp),
            (rss.udp, ffi::lr_rss_udp),
            (rss.sctp, ffi::lr_rss_sctp),
        ]
    };
    bits.into_iter().filter(|(on, _)| *on).fold(0, |all, (_, bit)| all | bit)
}

fn zeroed() -> ffi::rte_eth_conf {
    // SAFETY: a C struct of numbers and pointers, for which all-zero is the documented default.
    unsafe { MaybeUninit::zeroed().assume_init() }
}
