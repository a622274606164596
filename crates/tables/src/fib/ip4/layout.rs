//! How entries and records are laid out: see the picture in [`super`].

/// Slots of the direct table: one per /18.
pub(crate) const SLOTS: usize = 1 << 18;

/// Cells a record describes: the /24s of a /18, or the addresses of a /26.
pub(crate) const CELLS: usize = 64;

/// Most words a record takes: 64 items of four bytes behind the change word.
pub(crate) const RECORD_WORDS: usize = 33;

/// Words of a quad: four entries, one per /26 of a /24.
pub(crate) const QUAD_WORDS: usize = 2;

/// Runs from which a plain array replaces the change word and the run list: nearly every cell differs.
const PLAIN_FROM: usize = 48;

/// A 32-bit entry of the direct table, of a quad, or of a record with four-byte items.
///
/// Bit 31 clear: a leaf, the rest is the next hop's index (0: what the default route says). Bit 31 set: bit 30 = plain
/// array, bits 29–28 = log2 of the item size in bytes, bits 27–0 = index of the record's (or quad's) first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry(pub(crate) u32);

impl Entry {
    pub(crate) const DEFAULT: Entry = Entry(0);
    pub(crate) const POINTER: u32 = 1 << 31;
    pub(crate) const PLAIN: u32 = 1 << 30;
    pub(crate) const SIZE_SHIFT: u32 = 28;
    pub(crate) const AT_MASK: u32 = (1 << 28) - 1;

    pub(crate) fn leaf(index: u32) -> Self {
        Entry(index)
    }

    pub(crate) fn quad(at: u32) -> Self {
        Entry(Self::POINTER | at)
    }

    fn record(shape: Shape, at: u32) -> Self {
        let plain = if shape.plain { Self::PLAIN } else { 0 };
        Entry(Self::POINTER | plain | u32::from(shape.log2_size) << Self::SIZE_SHIFT | at)
    }

    pub(crate) fn is_pointer(self) -> bool {
        self.0 & Self::POINTER != 0
    }

    /// Index of the first word of what a pointer points at.
    pub(crate) fn at(self) -> u32 {
        self.0 & Self::AT_MASK
    }

    fn shape(self) -> Shape {
        Shape { plain: self.0 & Self::PLAIN != 0, log2_size: (self.0 >> Self::SIZE_SHIFT & 3) as u8 }
    }

    /// Words of the record this entry points at, given its first word.
    pub(crate) fn record_words(self, first_word: u64) -> usize {
        let shape = self.shape();
        if shape.plain { shape.plain_words() } else { shape.run_words(first_word.count_ones() as usize + 1) }
    }
}

#[derive(Clone, Copy)]
struct Shape {
    plain: bool,
    log2_size: u8,
}

impl Shape {
    fn plain_words(self) -> usize {
        (CELLS << self.log2_size) / 8
    }

    fn run_words(self, runs: usize) -> usize {
        1 + (runs << self.log2_size).div_ceil(8)
    }
}

/// What 64 painted cells become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Painted {
    /// All the same: no record needed.
    Uniform(Entry),
    /// A record.
    Record,
}

/// A record ready to be copied into the arena.
pub(crate) struct Encoded {
    shape: Shape,
    words: [u64; RECORD_WORDS],
    len: usize,
}

impl Default for Encoded {
    fn default() -> Self {
        Encoded { shape: Shape { plain: false, log2_size: 0 }, words: [0; RECORD_WORDS], len: 0 }
    }
}

impl Encoded {
    /// Encodes 64 cells, each a leaf or a pointer to a quad, in the smallest item size that holds them all. Where they
    /// are all the same, what was encoded before stays.
    pub(crate) fn encode(&mut self, cells: &[u32; CELLS]) -> Painted {
        let mut changes = 0u64;
        let mut all = cells[0];
        for (i, pair) in cells.windows(2).enumerate() {
            changes |= u64::from(pair[0] != pair[1]) << (i + 1);
            all |= pair[1];
        }
        if changes == 0 {
            return Painted::Uniform(Entry(cells[0]));
        }
        let log2_size = match all {
            0..=0xff => 0,
            0x100..=0xffff => 1,
            _ => 2,
        };
        let runs = changes.count_ones() as usize + 1;
        self.shape = Shape { plain: runs >= PLAIN_FROM, log2_size };
        if self.shape.plain {
            self.len = self.shape.plain_words();
            self.words[..self.len].fill(0);
            for (i, &cell) in cells.iter().enumerate() {
                put(&mut self.words, i, log2_size, cell);
            }
        } else {
            self.len = self.shape.run_words(runs);
            self.words[..self.len].fill(0);
            self.words[0] = changes;
            let items = &mut self.words[1..];
            put(items, 0, log2_size, cells[0]);
            let (mut left, mut i) = (changes, 1);
            while left != 0 {
                put(items, i, log2_size, cells[left.trailing_zeros() as usize % CELLS]);
                left &= left - 1;
                i += 1;
            }
        }
        Painted::Record
    }

    pub(crate) fn words(&self) -> &[u64] {
        self.words.get(..self.len).unwrap_or_default()
    }

    /// The entry for this record when it is stored at `at`.
    pub(crate) fn entry(&self, at: u32) -> Entry {
        Entry::record(self.shape, at)
    }

    /// Whether `entry` points at a record of this shape, so that equal words mean an equal record.
    pub(crate) fn same_shape(&self, entry: Entry) -> bool {
        entry.is_pointer() && self.entry(entry.at()) == entry
    }
}

fn put(words: &mut [u64], i: usize, log2_size: u8, value: u32) {
    let byte = i << log2_size;
    if let Some(word) = words.get_mut(byte / 8) {
        *word |= u64::from(value) << (byte % 8 * 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(cells: &[u32; CELLS]) -> Encoded {
        let mut record = Encoded::default();
        assert_eq!(record.encode(cells), Painted::Record);
        record
    }

    #[test]
    fn sizes_follow_runs_and_values() {
        assert_eq!(Encoded::default().encode(&[7; CELLS]), Painted::Uniform(Entry(7)));
        let mut cells = [7; CELLS];
        cells[5] = 255;
        let e = record(&cells);
        assert_eq!(e.words(), [0b110_0000, 0x07_ff_07]);
        assert_eq!(e.entry(3).record_words(e.words()[0]), 2);
        cells[5] = 256;
        assert_eq!(record(&cells).words(), [0b110_0000, 0x0007_0100_0007]);
        cells[63] = Entry::quad(9).0;
        let e = record(&cells);
        assert_eq!(e.words()[1..], [0x100_0000_0007, 0x8000_0009_0000_0007]);
        assert_eq!(e.entry(3).record_words(e.words()[0]), 3);
        assert!(e.same_shape(e.entry(77)) && !e.same_shape(Entry::quad(77)));
    }

    #[test]
    fn many_runs_become_a_plain_array() {
        let cells: [u32; CELLS] = std::array::from_fn(|i| i as u32);
        let e = record(&cells);
        assert_eq!((e.words().len(), e.words()[1]), (8, 0x0f0e_0d0c_0b0a_0908));
        assert_eq!(e.entry(1).record_words(e.words()[0]), 8);
    }
}
