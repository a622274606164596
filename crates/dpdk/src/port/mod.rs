//! Ports: a device with its queues, configured, started, stopped, closed.
//!
//! [`Device::open`] → [`Port::configure`] → [`Port::start`], which hands out the queues, each once. Packets go through
//! the queues; the port keeps everything else (link, addresses, statistics). A queue keeps its device open, so nothing
//! goes wrong when a port is dropped first: the device stops and closes with the last queue.

mod config;
mod device;
mod error;
mod opening;
mod queue;
mod setup;
mod stats;

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;

pub use config::{Note, PortConfig, Rss};
pub use device::{Device, PortInfo};
pub use error::PortError;
pub use queue::{RxQueue, TxQueue};
pub use stats::{Link, PortStats};

use crate::eal::Eal;
use crate::ffi;
use crate::life;
use crate::pool::Pool;
use device::Inner;

/// State of a port that carries no packets.
#[derive(Debug)]
pub struct Stopped(());

/// State of a port whose queues are handed out.
#[derive(Debug)]
pub struct Started(());

/// A configured port. `Send`, not `Sync`: DPDK's control functions are not thread-safe.
#[derive(Debug)]
pub struct Port<State> {
    inner: Arc<Inner>,
    info: PortInfo,
    config: PortConfig,
    notes: Vec<Note>,
    linearise: bool,
    _state: PhantomData<(State, Cell<()>)>,
}

/// What [`Port::start`] hands out: the port and its queues, in order of index.
pub type Running = (Port<Started>, Vec<RxQueue>, Vec<TxQueue>);

/// A port that refused to stop.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct StopError {
    /// The port, running on.
    pub port: Port<Started>,
    /// Why.
    pub error: PortError,
}

impl Port<Stopped> {
    /// Opens a device and configures it; see [`Device::open`] and [`Port::configure`].
    pub fn open(
        eal: &'static Eal,
        device: &str,
        config: &PortConfig,
        pool: &'static Pool,
    ) -> Result<Self, PortError> {
        Self::configure(Device::open(eal, device)?, config, pool)
    }

    /// Two ports joined by rings, with `queues` queues each; see [`Device::ring_pair`]. `config.rx_queues` and
    /// `config.tx_queues` are ignored. What one sends comes out of the other in the sender's buffers, whatever `pool`.
    pub fn ring_pair(
        eal: &'static Eal,
        name: &str,
        size: u32,
        queues: u16,
        config: &PortConfig,
        pool: &'static Pool,
    ) -> Result<(Self, Self), PortError> {
        let (a, b) = Device::ring_pair(eal, name, size, queues)?;
        let config = PortConfig { rx_queues: queues, tx_queues: queues, ..config.clone() };
        Ok((Self::configure(a, &config, pool)?, Self::configure(b, &config, pool)?))
    }

    /// Configures a device whose receive queues all take buffers from `pool`.
    pub fn configure(device: Device, config: &PortConfig, pool: &'static Pool) -> Result<Self, PortError> {
        let _control = life::control();
        let done = setup::configure(&device.inner, config, pool);
        // The lock must go before the device does where the configuration failed: closing takes it.
        drop(_control);
        let (info, notes, linearise) = done?;
        let Device { inner } = device;
        Ok(Self { inner, info, config: config.clone(), notes, linearise, _state: PhantomData })
    }

    /// Starts the device and hands out its queues.
    pub fn start(self) -> Result<Running, PortError> {
        let _control = life::control();
        // SAFETY: the port is open and configured, no queue of it exists.
        let code = unsafe { ffi::rte_eth_dev_start(self.inner.id) };
        if code < 0 {
            let error = self.inner.failed("rte_eth_dev_start", crate::errno::Errno::from_return(code));
            drop(_control);
            return Err(error);
        }
        let mut port = self.into_state();
        setup::after_start(&port.inner, &port.config, &mut port.notes);
        let mut rx: Vec<_> =
            (0..port.config.rx_queues).map(|i| RxQueue::new(port.inner.clone(), i)).collect();
        if port.inner.driver == "net_af_packet" {
            // Its sockets hear every interface of the namespace from when they are made until they are bound.
            rx.iter_mut().for_each(RxQueue::discard);
        }
        let tx =
            (0..port.config.tx_queues).map(|i| TxQueue::new(port.inner.clone(), i, port.linearise)).collect();
        Ok((port, rx, tx))
    }
}

impl Port<Started> {
    /// Stops the device. Takes its queues back: refused (and the port keeps running) while any queue is elsewhere.
    pub fn stop(self, rx: Vec<RxQueue>, tx: Vec<TxQueue>) -> Result<Port<Stopped>, Box<StopError>> {
        drop((rx, tx));
        let queues = Arc::strong_count(&self.inner) - 1;
        if queues > 0 {
            let error = PortError::QueuesOut { port: self.inner.name.clone(), queues };
            return Err(Box::new(StopError { port: self, error }));
        }
        let control = life::control();
        // SAFETY: the port runs and no queue of it exists.
        let code = unsafe { ffi::rte_eth_dev_stop(self.inner.id) };
        drop(control);
        match self.inner.done("stopping", "rte_eth_dev_stop", code) {
            Ok(()) => Ok(self.into_state()),
            Err(error) => Err(Box::new(StopError { port: self, error })),
        }
    }

    /// State of the link, without waiting.
    pub fn link(&self) -> Result<Link, PortError> {
        stats::link(&self.inner)
    }
}

impl<State> Port<State> {
    /// What the device is and can do, as read when it was configured.
    #[must_use]
    pub fn info(&self) -> &PortInfo {
        &self.info
    }

    /// What the port was asked to be.
    #[must_use]
    pub fn config(&self) -> &PortConfig {
        &self.config
    }

    /// What the device does otherwise than asked.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// DPDK's port number.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.inner.id
    }

    /// The device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Counters.
    pub fn stats(&self) -> Result<PortStats, PortError> {
        stats::stats(&self.inner)
    }

    /// The driver's own counters by name, in its order.
    pub fn xstats(&self) -> Result<Vec<(String, u64)>, PortError> {
        stats::xstats(&self.inner)
    }

    /// Sets all counters to zero.
    pub fn reset_stats(&mut self) -> Result<(), PortError> {
        stats::reset(&self.inner)
    }

    /// The port's MAC address.
    pub fn mac(&self) -> Result<[u8; 6], PortError> {
        setup::mac(&self.inner)
    }

    /// Changes the port's MAC address.
    pub fn set_mac(&mut self, mac: [u8; 6]) -> Result<(), PortError> {
        setup::set_mac(&self.inner, mac)
    }

    /// Receives frames for one more unicast address.
    pub fn add_mac(&mut self, mac: [u8; 6]) -> Result<(), PortError> {
        setup::add_mac(&self.inner, mac)
    }

    /// No longer receives frames for an address that was added.
    pub fn remove_mac(&mut self, mac: [u8; 6]) -> Result<(), PortError> {
        setup::remove_mac(&self.inner, mac)
    }

    /// Receives frames for these multicast addresses and no others (besides all, where that is on).
    pub fn set_multicast(&mut self, macs: &[[u8; 6]]) -> Result<(), PortError> {
        setup::set_multicast(&self.inner, macs)
    }

    /// Receives frames for any address, or no longer.
    pub fn set_promiscuous(&mut self, on: bool) -> Result<(), PortError> {
        setup::set_promiscuous(&self.inner, on)
    }

    /// Receives frames for any multicast address, or no longer.
    pub fn set_all_multicast(&mut self, on: bool) -> Result<(), PortError> {
        setup::set_all_multicast(&self.inner, on)
    }

    /// The MTU in effect, in bytes.
    pub fn mtu(&self) -> Result<u16, PortError> {
        // A driver that carries more than it announces takes no larger MTU either, and has none of its own.
        if self.inner.carries.is_some() { Ok(self.config.mtu) } else { setup::mtu(&self.inner) }
    }

    /// Changes the MTU. Many devices want to be stopped for it.
    pub fn set_mtu(&mut self, mtu: u16) -> Result<(), PortError> {
        setup::check_mtu(&self.inner.name, mtu, &self.info)?;
        setup::set_mtu(&self.inner, mtu)?;
        self.config.mtu = mtu;
        Ok(())
    }

    /// Fills the RSS redirection table: hash modulo its size picks the entry, the entry the queue. `queues` is repeated
    /// over the table.
    pub fn set_reta(&mut self, queues: &[u16]) -> Result<(), PortError> {
        setup::set_reta(&self.inner, &self.info, self.config.rx_queues, queues)
    }

    /// The RSS redirection table.
    pub fn reta(&self) -> Result<Vec<u16>, PortError> {
        setup::reta(&self.inner, &self.info)
    }

    fn into_state<To>(self) -> Port<To> {
        let Self { inner, info, config, notes, linearise, _state } = self;
        Port { inner, info, config, notes, linearise, _state: PhantomData }
    }
}
