//! From bytes to events.

use netlink_packet_core::{NLM_F_APPEND, NLM_F_MULTIPART, NLM_F_REPLACE};

use super::decode_interface::{address, link, neighbor};
use super::decode_nexthop::nexthop;
use super::decode_route::{RouteMessage, route};
use super::decode_rule::rule;
use super::fault::{Fault, Faults};
use super::model::{Change, Event};
use super::wire::*;

/// Decodes netlink messages. Whatever cannot be understood is counted in [`faults`](Self::faults) and skipped.
#[derive(Clone, Debug)]
pub struct Decoder {
    /// What was skipped.
    pub faults: Faults,
    messages: u64,
}

impl Decoder {
    /// A decoder; `source` is what the log says messages came from.
    pub fn new(source: &'static str) -> Self {
        Decoder { faults: Faults::new(source), messages: 0 }
    }

    /// Messages seen, understood or not.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Decodes all messages of a buffer.
    pub fn decode(&mut self, buffer: &[u8], mut each: impl FnMut(Event)) {
        for message in Messages::new(buffer) {
            match message {
                Ok(message) => {
                    if let Some(event) = self.message(message) {
                        each(event);
                    }
                }
                Err(fault) => self.faults.note(fault),
            }
        }
    }

    /// Decodes one message. `None`: there was nothing in it for a router.
    pub(crate) fn message(&mut self, message: Message<'_>) -> Option<Event> {
        self.messages += 1;
        let mut cx = Context { message: message.kind, faults: &mut self.faults };
        let result =
            match message.kind {
                RTM_NEWROUTE | RTM_DELROUTE => route(&mut cx, message.body).map(|r| {
                    r.map(|r| match r {
                        RouteMessage::Route(r) => Event::Route(change(message, RTM_DELROUTE), r),
                        RouteMessage::Multicast(r) => Event::Multicast(change(message, RTM_DELROUTE), r),
                    })
                }),
                RTM_NEWNEXTHOP | RTM_DELNEXTHOP => {
                    let change = change(message, RTM_DELNEXTHOP);
                    nexthop(&mut cx, message.body, change == Change::Delete)
                        .map(|n| Some(Event::Nexthop(change, n)))
                }
                RTM_NEWLINK | RTM_DELLINK => link(&mut cx, message.body)
                    .map(|l| l.map(|l| Event::Link(change(message, RTM_DELLINK), l))),
                RTM_NEWADDR | RTM_DELADDR => address(&mut cx, message.body)
                    .map(|a| Some(Event::Address(change(message, RTM_DELADDR), a))),
                RTM_NEWNEIGH | RTM_DELNEIGH => neighbor(&mut cx, message.body)
                    .map(|n| n.map(|n| Event::Neighbor(change(message, RTM_DELNEIGH), n))),
                RTM_NEWRULE | RTM_DELRULE => rule(&mut cx, message.body)
                    .map(|r| r.map(|r| Event::Rule(change(message, RTM_DELRULE), r))),
                other => Err(Fault::MessageType(other)),
            };
        result.unwrap_or_else(|fault| {
            self.faults.note(fault);
            None
        })
    }
}

fn change(message: Message<'_>, delete: u16) -> Change {
    if message.kind == delete {
        Change::Delete
    } else if message.flags & NLM_F_REPLACE != 0 {
        Change::Replace
    } else if message.flags & NLM_F_APPEND != 0 || message.flags & NLM_F_MULTIPART != 0 {
        // Dumps list routes in the order in which they are preferred.
        Change::Append
    } else {
        Change::Add
    }
}

/// What decoding a message needs besides its body.
pub(super) struct Context<'a> {
    pub(super) message: u16,
    faults: &'a mut Faults,
}

impl Context<'_> {
    /// Splits a message into its fixed part and the rest.
    pub(super) fn fixed<'b, const N: usize>(&self, body: &'b [u8]) -> Result<(&'b [u8; N], &'b [u8]), Fault> {
        body.split_first_chunk().ok_or(Fault::Short(self.message))
    }

    pub(super) fn attributes<'b>(
        &self,
        bytes: &'b [u8],
    ) -> impl Iterator<Item = Result<(u16, &'b [u8]), Fault>> + use<'b> {
        let fault = Fault::Attributes(self.message);
        attributes(bytes).map(move |a| a.map_err(|NotAttributes| fault))
    }

    /// A value that must be there, or the attribute is wrong.
    pub(super) fn value<T>(&self, attribute: u16, value: Option<T>) -> Result<T, Fault> {
        value.ok_or(Fault::Value { message: self.message, attribute })
    }

    pub(super) fn missing(&self, attribute: u16) -> Fault {
        Fault::Missing { message: self.message, attribute }
    }

    pub(super) fn family(&self, family: u8) -> Fault {
        Fault::Family { message: self.message, family }
    }

    /// Counts an attribute newer than this program, `known` being the newest that is known.
    pub(super) fn ignored(&mut self, attribute: u16, known: u16) {
        if attribute > known {
            self.faults.note(Fault::UnknownAttribute { message: self.message, attribute });
        }
    }
}

/// Arbitrary bytes as netlink messages and as an FPM stream: what the fuzzer and the property tests call.
pub fn fuzz(bytes: &[u8]) {
    let mut decoder = Decoder::new("fuzz");
    let mut table = super::RouteTable::new();
    decoder.decode(bytes, |event| {
        if let Event::Route(change, route) = event {
            table.apply(change, route);
        }
    });
    crate::fpm::fuzz(bytes);
}
