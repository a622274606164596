//! `[[vrf]]`: routing tables of their own, and how the rest of the configuration names them.

use linerate_engine::desired::VrfSpec;
use linerate_pipeline::VrfId;
use linerate_pipeline::policy::MAX_VRFS;

use super::decode::{Item, Section, Source};
use super::interfaces::no_such;

/// The VRF of interfaces and routes that name none.
pub(super) const DEFAULT: &str = "default";

/// The VRFs of a configuration. Numbers are those of the router: 0 is the default one, the others follow in order.
pub(super) struct Vrfs(Vec<VrfSpec>);

pub(super) fn read(sections: Vec<Section<'_>>, source: &Source<'_>) -> Vrfs {
    let mut all: Vec<(VrfSpec, usize)> = Vec::new();
    let most = MAX_VRFS - 1;
    if let Some(one_too_many) = sections.get(most) {
        let message = format!("found {} VRFs: expected at most {most}", sections.len());
        source.problem(one_too_many.at, &one_too_many.key, message);
    }
    for mut s in sections {
        let at = s.at;
        let name = super::name(&mut s, 15);
        let table =
            s.take("table").and_then(|i| i.number(1..=u32::MAX, "the number of a routing table in Linux"));
        s.finish();
        let Some(name) = name else { continue };
        if name.value == DEFAULT {
            let message = "the VRF of all that names none is called \"default\": expected another name";
            name.problem(source, message);
        } else if let Some((_, first)) = all.iter().find(|(v, _)| v.name == name.value) {
            let line = source.line(*first);
            name.problem(source, format!("the name of the VRF of line {line} again: expected another"));
        }
        if let Some(table) = &table
            && let Some((other, _)) = all.iter().find(|(v, _)| v.table == Some(table.value))
        {
            table.problem(source, format!("VRF \"{}\" has this table already: expected another", other.name));
        }
        all.push((VrfSpec { name: name.value, table: table.map(|t| t.value) }, at));
    }
    Vrfs(all.into_iter().map(|(vrf, _)| vrf).collect())
}

impl Vrfs {
    /// The number of the VRF that a key names, 0 where the key is absent; `None` after a problem.
    pub(super) fn of(&self, item: Option<&Item<'_>>) -> Option<VrfId> {
        let Some(item) = item else { return Some(0) };
        let wanted = item.string("the name of a [[vrf]]")?;
        let found = self.number(&wanted.value);
        if found.is_none() {
            let names = self.0.iter().map(|v| v.name.as_str());
            wanted.problem(item.source, no_such("vrf", &wanted.value, names));
        }
        found
    }

    fn number(&self, name: &str) -> Option<VrfId> {
        if name == DEFAULT {
            return Some(0);
        }
        self.0.iter().position(|v| v.name == name).map(|at| at as VrfId + 1)
    }

    /// The name of a VRF; `None` for the default one.
    pub(super) fn name(&self, vrf: VrfId) -> Option<&str> {
        self.0.get(usize::from(vrf).checked_sub(1)?).map(|v| v.name.as_str())
    }

    /// " in VRF red", for messages; nothing for the default one.
    pub(super) fn place(&self, vrf: VrfId) -> String {
        self.name(vrf).map_or(String::new(), |name| format!(" in VRF \"{name}\""))
    }

    pub(super) fn specs(self) -> Vec<VrfSpec> {
        self.0
    }
}
