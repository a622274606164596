//! `prefix nexthop` lines: a prefix with its length, white space, and a next hop: a number or an address. `#` begins a
//! comment; empty lines are skipped.

use std::io::{BufRead, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{Collector, Format, MAX_ERRORS, NextHop, Place, Rib, RibError};

/// No line of a table is longer; what is longer is not one.
const MAX_LINE: u64 = 1024;

pub(super) fn read(mut input: impl BufRead) -> Result<Rib, Vec<RibError>> {
    let mut out = Collector::new(Format::Text);
    let mut errors = Vec::new();
    let mut buffer = Vec::with_capacity(128);
    let mut number = 0;
    loop {
        number += 1;
        let place = Place::Line(number);
        buffer.clear();
        match input.by_ref().take(MAX_LINE).read_until(b'\n', &mut buffer) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => {
                errors.push(RibError::Read { place: Place::Line(number.saturating_sub(1)), error });
                break;
            }
        }
        if buffer.len() as u64 == MAX_LINE && buffer.last() != Some(&b'\n') {
            errors.push(RibError::at(place, "the line is over 1,023 bytes long: expected `prefix nexthop`"));
            break;
        }
        match line(&buffer) {
            Ok(None) => {}
            Ok(Some((prefix, next_hop))) => {
                if let Err(e) = out.add(prefix, next_hop, place) {
                    errors.push(e);
                    break;
                }
            }
            Err(what) => errors.push(RibError::at(place, what)),
        }
        if errors.len() >= MAX_ERRORS {
            break;
        }
    }
    if errors.is_empty() { Ok(out.rib) } else { Err(errors) }
}

/// One line: `None` where it is empty or a comment.
fn line(bytes: &[u8]) -> Result<Option<(IpNet, NextHop)>, String> {
    let bytes = match bytes.iter().position(|b| *b == b'#') {
        Some(at) => &bytes[..at],
        None => bytes,
    };
    let mut words = bytes.split(|b| b.is_ascii_whitespace()).filter(|w| !w.is_empty());
    let Some(first) = words.next() else { return Ok(None) };
    let prefix = prefix(first)?;
    let Some(second) = words.next() else {
        return Err(format!("found only {}: expected `prefix nexthop`, and there is no next hop", quote(first)));
    };
    let next_hop = next_hop(second)?;
    match words.next() {
        None => Ok(Some((prefix, next_hop))),
        Some(more) => Err(format!("found {} after the next hop: expected the end of the line", quote(more))),
    }
}

fn prefix(word: &[u8]) -> Result<IpNet, String> {
    let wrong = || format!("found {}: expected a prefix such as 198.51.100.0/24 or 2001:db8::/32", quote(word));
    let slash = word.iter().position(|b| *b == b'/').ok_or_else(wrong)?;
    let length = decimal(&word[slash + 1..]).and_then(|n| u8::try_from(n).ok());
    let address = &word[..slash];
    let net = match dotted_quad(address) {
        Some(v4) => length.and_then(|n| Ipv4Net::new(v4, n).ok()).map(IpNet::V4),
        None => {
            let v6: Ipv6Addr = str::from_utf8(address).ok().and_then(|a| a.parse().ok()).ok_or_else(wrong)?;
            length.and_then(|n| Ipv6Net::new(v6, n).ok()).map(IpNet::V6)
        }
    };
    let Some(net) = net else {
        let most = if address.contains(&b':') { 128 } else { 32 };
        return Err(format!("found {}: expected a prefix length from 0 to {most}", quote(word)));
    };
    if net.addr() != net.network() {
        return Err(format!("{net} has host bits set: expected {}", net.trunc()));
    }
    Ok(net)
}

fn next_hop(word: &[u8]) -> Result<NextHop, String> {
    if let Some(id) = decimal(word) {
        return Ok(NextHop::Id(id));
    }
    str::from_utf8(word).ok().and_then(|w| w.parse::<IpAddr>().ok()).map(NextHop::Address).ok_or_else(|| {
        format!("found {}: expected a next hop, a number from 0 to {} or an address", quote(word), u32::MAX)
    })
}

/// Most of a full table is dotted quads: this is several times faster than the standard library's parser.
fn dotted_quad(word: &[u8]) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut parts = word.split(|b| *b == b'.');
    for octet in &mut octets {
        let part = parts.next()?;
        let leading_zero = part.len() > 1 && part[0] == b'0';
        *octet = decimal(part).filter(|_| !leading_zero && part.len() <= 3)?.try_into().ok()?;
    }
    parts.next().is_none().then(|| octets.into())
}

fn decimal(word: &[u8]) -> Option<u32> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0u32, |n, b| {
        let digit = b.checked_sub(b'0').filter(|d| *d <= 9)?;
        n.checked_mul(10)?.checked_add(u32::from(digit))
    })
}

/// A word of the file for a message: shortened, unprintable bytes escaped.
fn quote(word: &[u8]) -> String {
    let short = &word[..word.len().min(40)];
    let more = if short.len() < word.len() { "…" } else { "" };
    format!("`{}{more}`", short.escape_ascii())
}
