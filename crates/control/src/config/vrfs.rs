//! `[[vrf]]`: routing tables of their own, and how the rest of the configuration names them.

use linerate_engine::desired::VrfSpec;
use linerate_pipeline::VrfId;
use linerate_pipeline::policy::MAX_VRFS;

use super::decode::{Item, Section, Source};
use super::interfaces::no_such;

/// The VRF of interfaces and routes that name none.
pub(super) const DEFAULT: &str = "default";

/// The VRFs of a configuration. Numbers are those of the router: 0 is the default one, the others follow in order.
pub(super) struct Vrfs(Vec<String>);

pub(super) fn read(sections: Vec<Section<'_>>, source: &Source<'_>) -> Vrfs {
    let mut names: Vec<(String, usize)> = Vec::new();
    let most = MAX_VRFS - 1;
    if let Some(one_too_many) = sections.get(most) {
        let message = format!("found {} VRFs: expected at most {most}", sections.len());
        source.problem(one_too_many.at, &one_too_many.key, message);
    }
    for mut s in sections {
        let at = s.at;
        let name = super::name(&mut s, 15);
        s.finish();
        let Some(name) = name else { continue };
        if name.value == DEFAULT {
            let message = "the VRF of all that names none is called \"default\": expected another name";
            name.problem(source, message);
        } else if let Some((_, first)) = names.iter().find(|(n, _)| *n == name.value) {
            let line = source.line(*first);
            name.problem(source, format!("the name of the VRF of line {line} again: expected another"));
        }
        names.push((name.value, at));
    }
    Vrfs(names.into_iter().map(|(name, _)| name).collect())
}

impl Vrfs {
    /// The number of the VRF that a key names, 0 where the key is absent; `None` after a problem.
    pub(super) fn of(&self, item: Option<&Item<'_>>) -> Option<VrfId> {
        let Some(item) = item else { return Some(0) };
        let wanted = item.string("the name of a [[vrf]]")?;
        let found = self.number(&wanted.value);
        if found.is_none() {
            let names = self.0.iter().map(String::as_str);
            wanted.problem(item.source, no_such("vrf", &wanted.value, names));
        }
        found
    }

    fn number(&self, name: &str) -> Option<VrfId> {
        if name == DEFAULT {
            return Some(0);
        }
        self.0.iter().position(|n| n == name).map(|at| at as VrfId + 1)
    }

    /// The name of a VRF; `None` for the default one.
    pub(super) fn name(&self, vrf: VrfId) -> Option<&str> {
        self.0.get(usize::from(vrf).checked_sub(1)?).map(String::as_str)
    }

    /// " in VRF red", for messages; nothing for the default one.
    pub(super) fn place(&self, vrf: VrfId) -> String {
        self.name(vrf).map_or(String::new(), |name| format!(" in VRF \"{name}\""))
    }

    pub(super) fn specs(self) -> Vec<VrfSpec> {
        self.0.into_iter().map(|name| VrfSpec { name }).collect()
    }
}
