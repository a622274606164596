//! What FRR's zebra writes to an FPM connection (`dplane_fpm_nl`): next-hop objects, routes by them, both taken back.

use std::net::IpAddr;

use linerate_tables::prefix::{Address, Prefix};

const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;
const NEW_OBJECT: u16 = 104;
const DELETE_OBJECT: u16 = 105;

/// Protocol numbers: FRR's BGP.
const BGP: u8 = 186;

/// A next-hop object by a gateway on an interface.
pub(super) fn object(out: &mut Vec<u8>, id: u32, gateway: IpAddr, interface: u32) {
    // nhmsg: family, scope, protocol, flags; the object's id, interface and gateway.
    let mut body = vec![family(gateway), 0, BGP, 0, 0, 0, 0, 0];
    attribute(&mut body, 1, &id.to_ne_bytes());
    attribute(&mut body, 5, &interface.to_ne_bytes());
    attribute(&mut body, 6, &octets(gateway));
    message(out, NEW_OBJECT, &body);
}

/// An object goes.
pub(super) fn no_object(out: &mut Vec<u8>, id: u32) {
    let mut body = vec![0; 8];
    attribute(&mut body, 1, &id.to_ne_bytes());
    message(out, DELETE_OBJECT, &body);
}

/// A route by an object, in table main; `None`: it goes.
pub(super) fn route<A: Address>(out: &mut Vec<u8>, prefix: Prefix<A>, object: Option<u32>) {
    let first = prefix.first().to_ip();
    // rtmsg: family, lengths, TOS, table, protocol BGP, scope, type unicast, flags; prefix, metric and object.
    let mut body = vec![family(first), prefix.len(), 0, 0, 254, BGP, 0, 1, 0, 0, 0, 0];
    attribute(&mut body, 1, &octets(first));
    attribute(&mut body, 6, &20u32.to_ne_bytes());
    if let Some(object) = object {
        attribute(&mut body, 30, &object.to_ne_bytes());
    }
    message(out, if object.is_some() { NEW_ROUTE } else { DELETE_ROUTE }, &body);
}

fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { 2 } else { 10 }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(a) => a.octets().into(),
        IpAddr::V6(a) => a.octets().into(),
    }
}

/// One netlink message in one FPM frame.
fn message(out: &mut Vec<u8>, kind: u16, body: &[u8]) {
    let length = 16 + body.len() as u32;
    out.extend([1, 1]);
    out.extend((length as u16 + 4).to_be_bytes());
    out.extend(length.to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    // A request to create or replace.
    out.extend(0x501u16.to_ne_bytes());
    out.extend([0; 8]);
    out.extend(body);
}

/// An attribute whose length is a multiple of four.
fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend((4 + value.len() as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
}
