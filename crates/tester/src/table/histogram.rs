//! What the generated tables imitate: figures counted in public full tables.
//!
//! Source: the IPv4 and IPv6 tables of the Internet's default-free zone that the MIT-licensed repository
//! `gaissmai/bart` ships as test data (added January 2024; 901,899 IPv4 and 160,147 IPv6 prefixes, no duplicates, no
//! default route). Next hops were taken as `origin AS mod 64`. Counted per prefix length: how many there are; how many
//! lie inside a shorter prefix of the table ("nested") and how often such a one shares the next hop of the prefix around
//! it; how many directly follow a prefix of the same length ("adjacent") and how often those two share a next hop;
//! for nested ones, how long the prefix around them is.

/// The figures of one prefix length. Shares in permille.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length {
    /// Prefix length in bits.
    pub(super) len: u8,
    /// Prefixes of this length in the source.
    pub(super) count: u32,
    /// Share that lies inside a shorter prefix.
    pub(super) nested: u16,
    /// Of those, share with the next hop of the prefix around.
    pub(super) nested_same: u16,
    /// Share that directly follows another of this length.
    pub(super) adjacent: u16,
    /// Of those, share with the same next hop as the one before.
    pub(super) adjacent_same: u16,
}

const fn row(
    len: u8,
    count: u32,
    nested: u16,
    nested_same: u16,
    adjacent: u16,
    adjacent_same: u16,
) -> Length {
    Length { len, count, nested, nested_same, adjacent, adjacent_same }
}

/// IPv4: 901,899 prefixes.
pub(super) const IPV4: [Length; 25] = [
    row(8, 16, 0, 0, 0, 0),
    row(9, 13, 0, 0, 0, 0),
    row(10, 38, 0, 0, 0, 0),
    row(11, 103, 39, 500, 146, 330),
    row(12, 299, 104, 940, 258, 550),
    row(13, 581, 165, 900, 282, 570),
    row(14, 1_203, 148, 860, 318, 460),
    row(15, 2_100, 221, 870, 313, 560),
    row(16, 13_490, 238, 750, 596, 520),
    row(17, 8_235, 456, 930, 452, 730),
    row(18, 13_798, 498, 900, 516, 730),
    row(19, 24_870, 395, 860, 526, 680),
    row(20, 42_611, 545, 870, 573, 760),
    row(21, 50_750, 546, 860, 505, 780),
    row(22, 108_623, 453, 860, 544, 630),
    row(23, 96_510, 570, 840, 441, 810),
    row(24, 537_698, 514, 810, 691, 780),
    row(25, 20, 1000, 900, 0, 0),
    row(26, 3, 1000, 900, 0, 0),
    row(27, 11, 1000, 900, 0, 0),
    row(28, 18, 1000, 900, 0, 0),
    row(29, 17, 1000, 900, 0, 0),
    row(30, 3, 1000, 900, 0, 0),
    row(31, 3, 1000, 900, 0, 0),
    row(32, 886, 993, 990, 254, 1000),
];

/// IPv6: 160,147 prefixes.
pub(super) const IPV6: [Length; 46] = [
    row(16, 1, 0, 0, 0, 0),
    row(19, 1, 0, 0, 0, 0),
    row(20, 16, 0, 0, 0, 0),
    row(21, 3, 0, 0, 0, 0),
    row(22, 7, 0, 0, 0, 0),
    row(23, 8, 0, 0, 0, 0),
    row(24, 30, 0, 0, 0, 0),
    row(25, 8, 0, 0, 0, 0),
    row(26, 15, 0, 0, 0, 0),
    row(27, 20, 0, 0, 0, 0),
    row(28, 193, 440, 210, 114, 550),
    row(29, 4_371, 12, 940, 21, 450),
    row(30, 650, 435, 980, 454, 850),
    row(31, 284, 458, 830, 546, 550),
    row(32, 22_548, 254, 350, 312, 410),
    row(33, 2_926, 809, 990, 444, 940),
    row(34, 2_603, 720, 980, 643, 970),
    row(35, 1_043, 622, 970, 600, 940),
    row(36, 5_996, 566, 970, 599, 970),
    row(37, 880, 753, 920, 497, 960),
    row(38, 1_617, 524, 860, 589, 930),
    row(39, 1_377, 821, 750, 683, 980),
    row(40, 13_418, 763, 890, 662, 970),
    row(41, 903, 532, 950, 608, 960),
    row(42, 2_301, 796, 980, 621, 990),
    row(43, 1_001, 434, 770, 592, 990),
    row(44, 14_365, 717, 820, 568, 950),
    row(45, 1_553, 816, 840, 622, 950),
    row(46, 3_039, 532, 850, 653, 990),
    row(47, 3_153, 786, 910, 617, 980),
    row(48, 75_488, 595, 820, 580, 900),
    row(49, 11, 970, 930, 0, 0),
    row(50, 3, 970, 930, 0, 0),
    row(52, 1, 970, 930, 0, 0),
    row(55, 1, 970, 930, 0, 0),
    row(56, 24, 970, 930, 0, 0),
    row(58, 20, 970, 930, 0, 0),
    row(60, 2, 970, 930, 0, 0),
    row(64, 184, 973, 930, 245, 1000),
    row(112, 2, 1000, 930, 0, 0),
    row(122, 1, 1000, 930, 0, 0),
    row(124, 4, 1000, 930, 0, 0),
    row(125, 9, 1000, 930, 0, 0),
    row(126, 19, 1000, 930, 0, 0),
    row(127, 42, 1000, 50, 0, 0),
    row(128, 6, 1000, 930, 0, 0),
];

/// How long the prefix around a nested one is, as (longest child length, permille by parent length). Taken over the
/// children of that range of lengths; what is missing to 1000 is spread over all shorter lengths.
pub(super) type Parents = &'static [(u8, &'static [(u8, u16)])];

/// IPv4 parents.
pub(super) const IPV4_PARENTS: Parents = &[
    (13, &[(9, 60), (11, 500), (12, 400)]),
    (16, &[(8, 30), (10, 130), (11, 100), (12, 140), (13, 200), (14, 250), (15, 150)]),
    (18, &[(10, 34), (11, 50), (12, 48), (13, 46), (14, 95), (15, 73), (16, 500), (17, 150)]),
    (20, &[(11, 45), (12, 38), (13, 44), (14, 110), (15, 71), (16, 300), (17, 82), (18, 160), (19, 140)]),
    (
        22,
        &[
            (12, 43),
            (13, 36),
            (14, 56),
            (15, 59),
            (16, 222),
            (17, 88),
            (18, 79),
            (19, 150),
            (20, 140),
            (21, 85),
        ],
    ),
    (23, &[(14, 42), (15, 40), (16, 162), (17, 69), (18, 66), (19, 113), (20, 76), (21, 58), (22, 294)]),
    (
        24,
        &[
            (14, 29),
            (15, 38),
            (16, 149),
            (17, 63),
            (18, 74),
            (19, 122),
            (20, 114),
            (21, 84),
            (22, 132),
            (23, 112),
        ],
    ),
    (32, &[(18, 44), (19, 32), (20, 167), (21, 113), (22, 180), (23, 116), (24, 310)]),
];

/// IPv6 parents.
pub(super) const IPV6_PARENTS: Parents = &[
    (28, &[(20, 859), (27, 129)]),
    (31, &[(20, 600), (24, 120), (29, 200)]),
    (32, &[(20, 837), (29, 119)]),
    (36, &[(29, 40), (30, 30), (32, 600), (33, 150), (34, 120), (35, 50)]),
    (39, &[(27, 60), (28, 85), (29, 80), (30, 45), (32, 500), (36, 130)]),
    (43, &[(20, 40), (29, 100), (30, 60), (32, 550), (33, 45), (36, 95), (40, 40)]),
    (47, &[(29, 50), (32, 480), (33, 70), (36, 110), (38, 70), (40, 70), (42, 30), (44, 40)]),
    (48, &[(29, 154), (32, 399), (36, 48), (40, 139), (42, 42), (44, 58), (47, 31)]),
    (126, &[(29, 73), (32, 737), (48, 140)]),
    (128, &[(29, 952)]),
];

/// First 16 bits of the IPv6 blocks in use, busiest first; rank `r` of `n` holds about `(2/n)·(1 − r/n)` of the routes.
pub(super) const IPV6_BLOCKS: [u16; 40] = [
    0x2001, 0x2804, 0x2409, 0x2a02, 0x2402, 0x2408, 0x2600, 0x2401, 0x240a, 0x2400, 0x2806, 0x2a00, 0x2800,
    0x2604, 0x240e, 0x2803, 0x2620, 0x2a01, 0x2407, 0x2607, 0x2a03, 0x2a04, 0x2a05, 0x2a06, 0x2a07, 0x2a09,
    0x2a0a, 0x2a0b, 0x2a0c, 0x2a0d, 0x2a0e, 0x2a0f, 0x2403, 0x2404, 0x2405, 0x2406, 0x2602, 0x2606, 0x2610,
    0x2c0f,
];

/// First octets of IPv4 with routes in the source; about `2·r/n²` of them lie in the octet of rank `r`.
pub(super) const IPV4_OCTETS: usize = 220;
