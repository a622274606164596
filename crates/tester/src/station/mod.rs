//! The stations that the tester plays on a port: they answer ARP, neighbour solicitations and pings for their addresses, ask for the
//! addresses of the device under test, and keep what they learned fresh.
//!
//! A [`Station`] is one host, or a whole network of them, behind one MAC address and up to two VLAN tags. Answers go out with the tags
//! that the question came with, priority included. The book of what was learned is shared with whoever plans the trial
//! ([`Learned`]); packets of trials never touch it.

mod frames;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use ipnet::IpNet;
use linerate_pipeline::Packet;
use linerate_wire::Mac;

use crate::source::Responder;
use frames::{Frame, Question, Said};

/// Between two questions for an address that does not answer, in nanoseconds.
const AGAIN: u64 = 1_000_000_000;
/// Age at which an answer is asked for anew, in nanoseconds.
const FRESH: u64 = 10_000_000_000;
/// Longest frame that is looked at whole: an echo request of an ordinary link.
const LONGEST: usize = 1518;

/// One station.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Station {
    /// Its MAC address.
    pub mac: Mac,
    /// Its VLANs, outer first: none, one or two.
    pub vlans: Vec<u16>,
    /// Its addresses; a prefix shorter than an address's length stands for all hosts in it.
    pub addresses: Vec<IpNet>,
    /// Addresses of the device under test that it asks for, each with the address of its own it asks from.
    pub asks: Vec<(IpAddr, IpAddr)>,
}

/// What stations learned: MAC addresses by station and address.
#[derive(Clone, Debug, Default)]
pub struct Learned(Arc<Mutex<BTreeMap<(usize, IpAddr), Mac>>>);

impl Learned {
    /// The MAC address that `address` has on the link of a station.
    pub fn mac(&self, station: usize, address: IpAddr) -> Option<Mac> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&(station, address)).copied()
    }

    fn set(&self, station: usize, address: IpAddr, mac: Mac) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((station, address), mac);
    }
}

/// All stations of a port.
#[derive(Debug)]
pub struct Stations {
    stations: Vec<Station>,
    learned: Learned,
    questions: Vec<Asked>,
    /// Nanoseconds per tick, times 2³².
    scale: u64,
}

#[derive(Debug)]
struct Asked {
    station: usize,
    target: IpAddr,
    from: IpAddr,
    asked_at: Option<u64>,
    answered_at: Option<u64>,
}

impl Stations {
    /// Stations on a port, by a clock of `hz` ticks per second.
    pub fn new(stations: Vec<Station>, hz: u64) -> Self {
        let questions = stations.iter().enumerate().flat_map(|(station, s)| {
            s.asks.iter().map(move |&(target, from)| Asked {
                station,
                target,
                from,
                asked_at: None,
                answered_at: None,
            })
        });
        Stations {
            questions: questions.collect(),
            learned: Learned::default(),
            scale: ((1_000_000_000u128 << 32) / u128::from(hz.max(1))) as u64,
            stations,
        }
    }

    /// What they learn.
    pub fn learned(&self) -> Learned {
        self.learned.clone()
    }

    fn nanoseconds(&self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.scale)) >> 32) as u64
    }

    /// The stations that a frame with these tags can be for.
    fn on<'a>(&'a self, vlans: &'a [u16]) -> impl Iterator<Item = (usize, &'a Station)> {
        self.stations.iter().enumerate().filter(move |(_, s)| s.vlans == vlans)
    }

    /// Takes a whole frame without FCS; `true`: it was for the stations.
    pub fn hear(&mut self, bytes: &[u8], now: u64, answers: &mut Vec<Vec<u8>>) -> bool {
        let Some(frame) = Frame::read(bytes) else { return false };
        let now = self.nanoseconds(now);
        match frame.said {
            Said::Asks { target, .. } | Said::Pings { target } => {
                let owner =
                    self.on(&frame.vlans).find(|(_, s)| s.addresses.iter().any(|n| n.contains(&target)));
                let Some((_, station)) = owner else { return false };
                let to_us =
                    frame.destination == station.mac || linerate_wire::eth::is_group(frame.destination);
                answers.extend(to_us.then(|| frame.answer(bytes, station.mac)).flatten());
                true
            }
            Said::Answers { target, mac } => {
                let mut known = false;
                for question in &mut self.questions {
                    let station = &self.stations[question.station];
                    if question.target == target && station.vlans[..] == frame.vlans[..] {
                        question.answered_at = Some(now);
                        self.learned.set(question.station, target, mac);
                        known = true;
                    }
                }
                known
            }
        }
    }

    /// Appends the questions that are due.
    pub fn due(&mut self, now: u64, frames: &mut Vec<Vec<u8>>) {
        let now = self.nanoseconds(now);
        for question in &mut self.questions {
            let since = |at: Option<u64>| at.map_or(u64::MAX, |at| now.saturating_sub(at));
            if since(question.answered_at) < FRESH || since(question.asked_at) < AGAIN {
                continue;
            }
            question.asked_at = Some(now);
            let station = &self.stations[question.station];
            let known = self.learned.mac(question.station, question.target);
            let asking = Question { from: question.from, target: question.target, known };
            frames.extend(asking.frame(station.mac, &station.vlans));
        }
    }
}

impl<P: Packet> Responder<P> for Stations {
    fn receive(&mut self, packet: &P, now: u64, answers: &mut Vec<Vec<u8>>) -> bool {
        if packet.segments() == 1 {
            return self.hear(packet.head(), now, answers);
        }
        if packet.len() > LONGEST {
            return false;
        }
        let mut bytes = vec![0; packet.len()];
        packet.copy_out(0, &mut bytes);
        self.hear(&bytes, now, answers)
    }

    fn tick(&mut self, now: u64, frames: &mut Vec<Vec<u8>>) {
        self.due(now, frames);
    }
}

#[cfg(test)]
mod tests;
