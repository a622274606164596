//! Fixed arrays of atomic words, committed by the kernel page by page as they are first written.

use std::sync::atomic::{AtomicU32, AtomicU64};

use zerocopy::FromZeros;

use super::writer::PlaneError;

/// Bytes of a cache line.
const LINE: usize = 64;

/// 64-bit words whose first one lies at the start of a cache line.
#[derive(Debug)]
pub(super) struct Words {
    words: Box<[AtomicU64]>,
    /// Words in front of the first whole cache line: the allocator aligns large blocks to 16 bytes only, and asking it
    /// for more would make it touch every page.
    skip: usize,
}

impl Words {
    pub(super) fn zeroed(len: usize) -> Result<Self, PlaneError> {
        let words: Box<[AtomicU64]> = zeroed(len + LINE / 8)?;
        let skip = (words.as_ptr() as usize).wrapping_neg() % LINE / 8;
        Ok(Words { words, skip })
    }

    #[inline(always)]
    pub(super) fn get(&self, at: usize) -> Option<&AtomicU64> {
        self.words.get(self.skip + at)
    }

    /// All of them.
    #[inline(always)]
    pub(super) fn all(&self) -> &[AtomicU64] {
        self.words.get(self.skip..).unwrap_or_default()
    }

    /// `N` words from `at` on.
    #[inline(always)]
    pub(super) fn chunk<const N: usize>(&self, at: usize) -> Option<&[AtomicU64; N]> {
        self.words.get(self.skip + at..)?.first_chunk()
    }
}

/// 32-bit words.
pub(super) fn zeroed_u32(len: usize) -> Result<Box<[AtomicU32]>, PlaneError> {
    zeroed(len)
}

/// 64-bit words.
pub(super) fn zeroed_u64(len: usize) -> Result<Box<[AtomicU64]>, PlaneError> {
    zeroed(len)
}

fn zeroed<T: FromZeros>(len: usize) -> Result<Box<[T]>, PlaneError> {
    <[T]>::new_box_zeroed_with_elems(len).map_err(|_| PlaneError::NoMemory(len * size_of::<T>()))
}
