//! Whether interfaces of Linux carry frames: for ports whose driver does not know.

use std::collections::BTreeMap;

use crate::netlink::{Links, NetlinkError};

/// What is known of some interfaces, followed without waiting.
///
/// An interface is followed by its index: one that was deleted and made again under the same name is another one, and who had
/// the old one open still has that.
pub struct LinkStates {
    links: Links,
    followed: BTreeMap<String, Followed>,
}

/// An interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Followed {
    /// Its index; `None`: there was none of that name.
    index: Option<u32>,
    running: bool,
}

impl LinkStates {
    /// Follows the interfaces of these names, in the network namespace of the calling thread.
    pub fn open(names: impl IntoIterator<Item = String>) -> Result<Self, NetlinkError> {
        let mut links = Links::open()?;
        let mut followed: BTreeMap<String, Followed> =
            names.into_iter().map(|name| (name, Followed { index: None, running: false })).collect();
        links.list(|seen| {
            if let Some(one) = followed.get_mut(seen.name) {
                *one = Followed { index: Some(seen.index), running: seen.running };
            }
        })?;
        Ok(LinkStates { links, followed })
    }

    /// Takes in what the kernel has said meanwhile; whether any interface has another state.
    pub fn follow(&mut self) -> Result<bool, NetlinkError> {
        let before = self.followed.clone();
        let all = !self.links.changes(|index, running| note(&mut self.followed, index, running))?;
        if all {
            // Messages were lost.
            let mut there = BTreeMap::new();
            self.links.list(|seen| _ = there.insert(seen.index, seen.running))?;
            for one in self.followed.values_mut() {
                one.running = one.index.and_then(|index| there.get(&index)).copied().unwrap_or(false);
            }
        }
        Ok(self.followed != before)
    }

    /// Whether an interface carries frames: it is up, and so is what it is joined to (`IFF_RUNNING`, RFC 2863's operational
    /// state). `None`: it is not followed.
    pub fn is_running(&self, name: &str) -> Option<bool> {
        self.followed.get(name).map(|one| one.running)
    }
}

fn note(followed: &mut BTreeMap<String, Followed>, index: u32, running: bool) {
    followed.values_mut().filter(|one| one.index == Some(index)).for_each(|one| one.running = running);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_followed_by_its_index() {
        let one = |index, running| Followed { index, running };
        let mut all: BTreeMap<String, Followed> =
            [("a".into(), one(Some(3), true)), ("b".into(), one(None, false))].into();
        note(&mut all, 4, true);
        assert_eq!(all["a"], one(Some(3), true));
        note(&mut all, 3, false);
        assert_eq!((all["a"], all["b"]), (one(Some(3), false), one(None, false)));
    }
}
