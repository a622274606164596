//! Pages of memory that was allocated the ordinary way: large ones for tables that workers walk at random, and those that
//! are given back to the kernel.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicU64;

/// Of the kernel's ABI, Linux 6.1 and later: make large pages of what is mapped now.
const MADV_COLLAPSE: c_int = 25;

/// The same: private memory reads as zero from now on, and takes none until it is written.
const MADV_DONTNEED: c_int = 4;

/// Size of an ordinary page on x86-64.
const PAGE: usize = 4096;

/// Size of a large page on x86-64.
const LARGE: usize = 2 << 20;

unsafe extern "C" {
    fn madvise(addr: *mut c_void, length: usize, advice: c_int) -> c_int;
    fn malloc_trim(pad: usize) -> c_int;
}

/// Sets all words to zero that fill whole pages, and gives those pages back to the kernel. They must be of ordinary memory, not
/// of a mapped file. Others may read and write the words meanwhile, as they may while each is stored.
pub fn discard(words: &[AtomicU64]) {
    let range = words.as_ptr_range();
    let (start, end) = ((range.start as usize).next_multiple_of(PAGE), range.end as usize / PAGE * PAGE);
    if start < end {
        // SAFETY: the pages lie inside the slice. What happens to them is what stores of zero to these atomics would do,
        // which anyone who has the slice may do at any time; the mapping stays.
        unsafe { madvise(start as *mut c_void, end - start, MADV_DONTNEED) };
    }
}

/// Gives the kernel back what the allocator keeps of memory that was freed. Takes up to some tens of milliseconds, for which
/// other threads may wait when they allocate or free.
pub fn trim() {
    // SAFETY: no arguments that could be wrong; it only touches memory that is free.
    unsafe { malloc_trim(0) };
}

/// Asks the kernel to put all private writable memory of this process, and DPDK's heap without hugepages, on 2 MiB
/// pages: a lookup in a full table touches a few lines anywhere in some megabytes, and misses the TLB on each with
/// ordinary pages. Whole large pages only, so memory grows by the rest of the last page of each mapping. Returns the
/// bytes it did that for; 0 where the kernel cannot (before Linux 6.1, or transparent hugepages are off).
pub fn large_pages() -> usize {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return 0 };
    maps.lines().filter_map(writable_range).map(|(start, end)| collapse(start, end)).sum()
}

/// The addresses of a mapping that holds data of ours.
fn writable_range(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_whitespace();
    let (range, permissions) = (fields.next()?, fields.next()?);
    let name = fields.nth(3).unwrap_or("");
    let ours = name.is_empty() || name == "[heap]" || name.starts_with("/memfd:nohuge");
    if !permissions.starts_with("rw") || !ours {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let parse = |hex| usize::from_str_radix(hex, 16).ok();
    let (start, end) = (parse(start)?.next_multiple_of(LARGE), parse(end)? / LARGE * LARGE);
    (start < end).then_some((start, end))
}

fn collapse(start: usize, end: usize) -> usize {
    let mut done = 0;
    for at in (start..end).step_by(LARGE) {
        // SAFETY: the range was mapped a moment ago. Should it be gone, or other memory be there, the call fails or
        // changes that memory's page size: contents stay as they are in every case.
        done += if unsafe { madvise(at as *mut c_void, LARGE, MADV_COLLAPSE) } == 0 { LARGE } else { 0 };
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pages_are_zero_and_the_rest_is_as_it_was() {
        use std::sync::atomic::Ordering::Relaxed;
        let words: Vec<AtomicU64> = (0..100_000).map(|_| AtomicU64::new(7)).collect();
        discard(&words[10..90_000]);
        let zeros = words.iter().filter(|w| w.load(Relaxed) == 0).count();
        assert!((89_990 - 2 * 512..=89_990).contains(&zeros), "{zeros}");
        assert!(words[..10].iter().chain(&words[90_000..]).all(|w| w.load(Relaxed) == 7));
        words[50_000].store(5, Relaxed);
        discard(&words[50_000..50_001]);
        trim();
        assert_eq!(words[50_000].load(Relaxed), 5, "less than a page");
    }

    #[test]
    fn only_data_mappings_are_taken() {
        let range = |line| writable_range(line);
        let anonymous = "7f0000100000-7f0000900000 rw-p 00000000 00:00 0";
        assert_eq!(range(anonymous), Some((0x7f00_0020_0000, 0x7f00_0080_0000)));
        assert_eq!(range("7f0000000000-7f0000400000 r-xp 00000000 08:01 5  /usr/lib/x.so"), None);
        assert_eq!(range("7f0000000000-7f0000400000 rw-p 00000000 08:01 5  /usr/lib/x.so"), None);
        assert_eq!(range("7f0000000000-7f0000001000 rw-p 00000000 00:00 0 [heap]"), None);
    }
}
