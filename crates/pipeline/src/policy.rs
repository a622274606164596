//! What an operator decides about IP on one interface, beside its addresses.

/// Number of a VRF: of one of the router's forwarding tables. [`VRF_DEFAULT`] always exists.
pub type VrfId = u16;

/// The VRF of interfaces and routes that name none.
pub const VRF_DEFAULT: VrfId = 0;

/// The most VRFs one router has, the default one included.
pub const MAX_VRFS: usize = 1024;

/// Whether the source address of what comes in by an interface must have a route (RFC 3704).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SourceValidation {
    /// No check.
    #[default]
    Off,
    /// The source must be covered by a route, of the interface's VRF, that forwards or is connected; the default route
    /// does not count, nor do routes that discard (RFC 3704 2.4, without the default route).
    Loose,
    /// The route back to the source must leave by this interface, any path of a multipath route counting (RFC 3704 2.2,
    /// 2.3). The default route counts.
    Strict,
}

impl SourceValidation {
    /// All, as they are named in configuration and views.
    pub const ALL: [(SourceValidation, &'static str); 3] = [
        (SourceValidation::Off, "off"),
        (SourceValidation::Loose, "loose"),
        (SourceValidation::Strict, "strict"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(v, _)| *v == self).map_or("off", |(_, name)| name)
    }
}

/// How an interface treats what RFCs leave to the operator. The default is what is safe on any link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct IpPolicy {
    /// Check of the sources of what comes in.
    pub source_validation: SourceValidation,
    /// Packets that come in elsewhere for the broadcast address of a network of this interface are sent as broadcasts
    /// (RFC 2644 asks for off).
    pub directed_broadcast: bool,
    /// Senders on the link are told of a better first hop on it (RFC 1812 5.2.7.2, RFC 4861 8.2).
    pub redirects: bool,
    /// Stations that announce themselves without being asked (gratuitous ARP, unsolicited advertisements) become
    /// neighbours; where they are neighbours already they are believed either way.
    pub learn_gratuitous: bool,
}
