//! Wire arithmetic: what a frame costs on the line.
//!
//! A frame's **size** always includes the 4-byte FCS (RFC 2544 appendix B, RFC 5180 appendix A.1). On the line it costs
//! 20 bytes more: 7 preamble, 1 start of frame, 12 inter-frame gap. DPDK's byte counters leave the FCS out.

/// Bytes of the frame check sequence, part of a frame's size and not of a packet buffer.
pub const FCS: u32 = 4;

/// Bytes a frame costs on the line beyond its size: preamble, start of frame, inter-frame gap.
pub const OVERHEAD: u32 = 20;

/// Frame sizes of RFC 2544 §9.1 and the jumbo size of data centres, in bytes including FCS.
pub const SIZES: [u16; 8] = [64, 128, 256, 512, 1024, 1280, 1518, 9000];

/// Most frames per second that a line carries: `floor(bit/s ÷ (8 · (size + 20)))`.
pub fn pps_max(line_bits_per_second: u64, size: u16) -> u64 {
    line_bits_per_second / (8 * u64::from(u32::from(size) + OVERHEAD))
}

/// Layer-1 bits per second (with preamble and gap) of a frame rate.
pub fn l1_bits_per_second(frames_per_second: f64, size: u16) -> f64 {
    frames_per_second * 8.0 * f64::from(u32::from(size) + OVERHEAD)
}

/// Layer-2 bits per second, FCS included, of a frame rate.
pub fn l2_bits_per_second(frames_per_second: f64, size: u16) -> f64 {
    frames_per_second * 8.0 * f64::from(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5180 appendix A.1 and RFC 2544 appendix B; its misprinted cells are corrected by the formula.
    #[test]
    fn line_rates_are_those_of_the_rfcs() {
        let g = 1_000_000_000;
        for (gigabits, size, pps) in [
            (10, 64, 14_880_952),
            (10, 128, 8_445_945),
            (10, 256, 4_528_985),
            (10, 512, 2_349_624),
            (10, 1024, 1_197_318),
            (10, 1280, 961_538),
            (10, 1518, 812_743),
            (25, 9000, 346_452),
            (25, 8192, 380_540),
            (100, 64, 148_809_523),
            (400, 9216, 5_413_598),
            (1, 4096, 30_369),
        ] {
            assert_eq!(pps_max(gigabits * g, size), pps, "{gigabits}G {size} B");
        }
    }

    #[test]
    fn a_full_line_reads_its_own_rate_at_layer_one() {
        for size in SIZES {
            let l1 = l1_bits_per_second(pps_max(100_000_000_000, size) as f64, size);
            assert!((99.99e9..=100e9).contains(&l1), "{size}: {l1}");
        }
        assert_eq!(l2_bits_per_second(1000.0, 64), 512_000.0);
    }
}
