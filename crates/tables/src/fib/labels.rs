//! Short labels for next-hop ids: up to 64 k distinct 32-bit ids in structures whose leaves are narrower.

use super::{FibError, NextHopId, arena::zeroed};
use crate::qsbr::{Domain, Epoch};
use std::{
    collections::{HashMap, VecDeque},
    mem,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

/// A label; 0 is [`super::NO_ROUTE`].
pub(crate) type Label = u16;

/// What readers resolve labels with: `ids[label]`.
pub(crate) type LabelTable = Arc<Box<[AtomicU32]>>;

/// Labels and how many routes use each.
pub(crate) struct Labels {
    ids: LabelTable,
    by_id: HashMap<NextHopId, Label>,
    uses: Vec<u32>,
    free: Vec<Label>,
    /// Unused labels that readers may still hold, oldest first.
    waiting: VecDeque<(Epoch, Label)>,
    domain: Domain,
}

impl Labels {
    /// Distinct ids one table can tell apart.
    pub(crate) const MOST: usize = Label::MAX as usize;

    /// No labels yet. The table readers use is committed by the kernel as it is touched.
    pub(crate) fn new(domain: Domain) -> Result<Self, FibError> {
        Ok(Labels {
            ids: Arc::new(zeroed(Self::MOST + 1)?),
            by_id: HashMap::new(),
            uses: vec![0],
            free: Vec::new(),
            waiting: VecDeque::new(),
            domain,
        })
    }

    /// The readers' side.
    pub(crate) fn table(&self) -> &LabelTable {
        &self.ids
    }

    /// The id a label stands for.
    pub(crate) fn id(&self, label: Label) -> NextHopId {
        self.ids[usize::from(label)].load(Ordering::Relaxed)
    }

    /// The label of an id, for one more user.
    pub(crate) fn acquire(&mut self, id: NextHopId) -> Result<Label, FibError> {
        if let Some(&label) = self.by_id.get(&id) {
            self.uses[usize::from(label)] += 1;
            return Ok(label);
        }
        if self.free.is_empty() && self.uses.len() > Self::MOST {
            self.reclaim();
        }
        let label = match self.free.pop() {
            Some(label) => label,
            None if self.uses.len() <= Self::MOST => {
                self.uses.push(0);
                (self.uses.len() - 1) as Label
            }
            None => return Err(FibError::TooManyNextHops(self.by_id.len())),
        };
        self.uses[usize::from(label)] = 1;
        self.by_id.insert(id, label);
        // Release: whoever sees a leaf with this label sees the id.
        self.ids[usize::from(label)].store(id, Ordering::Release);
        Ok(label)
    }

    /// One user less. Call it after the change that dropped the label is published.
    pub(crate) fn release(&mut self, label: Label) {
        let uses = &mut self.uses[usize::from(label)];
        *uses -= 1;
        if *uses == 0 {
            self.by_id.remove(&self.id(label));
            self.waiting.push_back((self.domain.advance(), label));
        }
    }

    /// Bytes readers touch.
    pub(crate) fn lookup_bytes(&self) -> usize {
        (self.uses.len() - 1) * 4
    }

    /// Bytes of the writer's lists.
    pub(crate) fn control_bytes(&self) -> usize {
        self.by_id.capacity() * mem::size_of::<(NextHopId, Label)>() + self.uses.capacity() * 4
    }

    fn reclaim(&mut self) {
        let passed = self.domain.passed();
        while let Some(&(epoch, label)) = self.waiting.front()
            && epoch <= passed
        {
            self.waiting.pop_front();
            self.free.push(label);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn labels_are_shared_counted_and_reused_only_after_readers_moved_on() {
        let domain = Domain::new();
        let mut reader = domain.register();
        let mut labels = Labels::new(domain).unwrap();
        for id in 1..=Labels::MOST as u32 {
            labels.acquire(id | 1 << 31).unwrap();
        }
        let one = labels.acquire(1 | 1 << 31).unwrap();
        assert_eq!(labels.acquire(5), Err(FibError::TooManyNextHops(65_535)));
        labels.release(one);
        assert_eq!(labels.acquire(5), Err(FibError::TooManyNextHops(65_535)), "still one user");
        labels.release(one);
        assert_eq!(labels.acquire(5), Err(FibError::TooManyNextHops(65_534)), "readers may hold it");
        reader.quiescent();
        let five = labels.acquire(5).unwrap();
        assert_eq!((five, labels.id(five)), (one, 5));
    }
}
