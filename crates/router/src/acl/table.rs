//! The compiled lists that workers read, their counters, and who writes them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use linerate_pipeline::IfIndex;
use linerate_pipeline::counters::Counter;
use linerate_tables::classifier::{ActionId, ClassifierError, Compiled, Icmp, MAX_RULES, Rule};
use linerate_tables::snapshot::{Publisher, Snapshot};

use super::log::AclHit;
use super::rule::{Acl, AclAction, AclRule, AclRuleError, Family};

/// Workers that can count. One beyond that filters and does not count.
const MAX_WORKERS: usize = 64;

/// Rules in one list at most.
pub const MAX_ACL_RULES: usize = 100_000;

/// In a table of bindings: no list.
const NONE: u16 = u16::MAX;

/// What a list says about a packet, as the classifier returns it: which rule, what to do, and whether to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision(ActionId);

impl Decision {
    const LOG: u32 = 1 << 28;
    const ACTION: u32 = 30;

    fn new(rule: usize, action: AclAction, log: bool) -> Self {
        let action = match action {
            AclAction::Permit => 0u32,
            AclAction::Deny => 1,
            AclAction::Reject => 2,
        };
        Decision(action << Self::ACTION | if log { Self::LOG } else { 0 } | rule as u32)
    }

    /// Of what the classifier returned.
    #[inline(always)]
    pub(crate) fn of(action: ActionId) -> Self {
        Decision(action)
    }

    fn id(self) -> ActionId {
        self.0
    }

    /// Permitted, and nothing to log.
    #[inline(always)]
    pub(crate) fn is_plain(self) -> bool {
        self.0 < Self::LOG
    }

    pub(crate) fn action(self) -> AclAction {
        match self.0 >> Self::ACTION {
            0 => AclAction::Permit,
            1 => AclAction::Deny,
            _ => AclAction::Reject,
        }
    }

    pub(crate) fn log(self) -> bool {
        self.0 & Self::LOG != 0
    }

    /// The rule's place; behind the last rule those that every list ends with.
    #[inline(always)]
    pub(crate) fn rule(self) -> usize {
        (self.0 & (Self::LOG - 1)) as usize
    }
}

/// What matched a rule.
#[derive(Debug, Default)]
#[repr(C, align(16))]
pub(crate) struct Hits {
    packets: Counter,
    bytes: Counter,
}

/// Counters of one list: a row for each worker, which it alone writes.
#[derive(Debug)]
pub(crate) struct Counts {
    rows: Box<[OnceLock<Box<[Hits]>>]>,
    rules: usize,
}

impl Counts {
    fn new(rules: usize) -> Self {
        Counts { rows: (0..MAX_WORKERS).map(|_| OnceLock::new()).collect(), rules }
    }

    /// Makes a worker's row. On a control thread.
    fn open(&self, worker: usize) {
        if let Some(row) = self.rows.get(worker) {
            row.get_or_init(|| (0..self.rules).map(|_| Hits::default()).collect());
        }
    }

    /// A worker's row; empty where it has none.
    #[inline(always)]
    fn row(&self, worker: usize) -> &[Hits] {
        self.rows.get(worker).and_then(OnceLock::get).map_or(&[], |row| row)
    }

    /// Packets and bytes of a rule, over all workers.
    fn sum(&self, rule: usize) -> (u64, u64) {
        let rows = self.rows.iter().filter_map(|row| row.get()?.get(rule));
        rows.fold((0, 0), |(p, b), hits| (p + hits.packets.get(), b + hits.bytes.get()))
    }
}

/// A worker's counters of one list.
#[derive(Clone, Copy, Default)]
pub(crate) struct Row<'a>(&'a [Hits]);

impl Row<'_> {
    /// Counts a packet.
    #[inline(always)]
    pub(crate) fn add(self, decision: Decision, bytes: usize) {
        if let Some(hits) = self.0.get(decision.rule()) {
            hits.packets.add(1);
            hits.bytes.add(bytes as u64);
        }
    }
}

/// A compiled list.
#[derive(Debug)]
pub(crate) struct List {
    acl: Acl,
    pub(crate) ip4: Compiled<u32>,
    pub(crate) ip6: Compiled<u128>,
    counts: Counts,
}

/// The compiled form for an address family.
pub(crate) trait ListOf: Family {
    fn of(list: &List) -> &Compiled<Self>;
}

impl ListOf for u32 {
    #[inline(always)]
    fn of(list: &List) -> &Compiled<u32> {
        &list.ip4
    }
}

impl ListOf for u128 {
    #[inline(always)]
    fn of(list: &List) -> &Compiled<u128> {
        &list.ip6
    }
}

/// Rules behind the configured ones: neighbour discovery, and all the rest.
const IMPLICIT: usize = 2;

/// ICMPv6 types that no list without a word about them may cut off: neighbour solicitation and advertisement.
const DISCOVERY: [u8; 2] = [135, 136];

impl List {
    fn check(acl: &Acl) -> Result<(), AclError> {
        if acl.rules.len() > MAX_ACL_RULES {
            return Err(AclError::TooManyRules { list: acl.name.clone(), rules: acl.rules.len() });
        }
        // Before anything is spelt out: a rule of a line may stand for thousands.
        let terms = acl.rules.iter().fold(0usize, |sum, rule| sum.saturating_add(rule.terms()));
        if terms > MAX_RULES - IMPLICIT {
            return Err(AclError::TooManyTerms { list: acl.name.clone(), terms });
        }
        for (i, rule) in acl.rules.iter().enumerate() {
            rule.check().map_err(|source| AclError::Rule { list: acl.name.clone(), rule: i + 1, source })?;
        }
        Ok(())
    }

    /// Compiles a list that has been checked.
    fn compile(acl: Acl) -> Result<Self, AclError> {
        let n = acl.rules.len();
        let (ip4, mut ip6) = (compiled::<u32>(&acl.rules), compiled::<u128>(&acl.rules));
        if acl.default != AclAction::Permit {
            let action = Decision::new(n, AclAction::Permit, false).id();
            ip6.extend(
                DISCOVERY.map(|kind| Rule { icmp: Some(Icmp { kind, code: None }), ..Rule::any(action) }),
            );
        }
        let rest = Decision::new(n + 1, acl.default, false).id();
        let refused = |source| AclError::Compile { list: acl.name.clone(), source };
        Ok(List {
            ip4: Compiled::new(&ip4, rest).map_err(refused)?,
            ip6: Compiled::new(&ip6, rest).map_err(refused)?,
            counts: Counts::new(n + IMPLICIT),
            acl,
        })
    }
}

fn compiled<A: Family>(rules: &[AclRule]) -> Vec<Rule<A>> {
    let of = |(i, rule): (usize, &AclRule)| rule.compiled(Decision::new(i, rule.action, rule.log).id());
    rules.iter().enumerate().flat_map(of).collect()
}

/// Which way packets go through an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// They come in by it.
    In,
    /// They leave by it.
    Out,
}

/// Lists by interface and direction, at one moment.
#[derive(Clone, Debug, Default)]
pub struct AclTable {
    /// Counts the changes.
    generation: u32,
    lists: Vec<Arc<List>>,
    /// By interface.
    inputs: Vec<u16>,
    outputs: Vec<u16>,
}

impl AclTable {
    /// Which state of the lists this is.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Whether packets that come in by some interface are looked at.
    #[inline(always)]
    pub(crate) fn filters_input(&self) -> bool {
        !self.inputs.is_empty()
    }

    /// Whether packets that leave by some interface are looked at.
    #[inline(always)]
    pub(crate) fn filters_output(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// The number of an interface's list.
    #[inline(always)]
    pub(crate) fn bound(&self, direction: Direction, interface: IfIndex) -> Option<u16> {
        let of = match direction {
            Direction::In => &self.inputs,
            Direction::Out => &self.outputs,
        };
        of.get(usize::from(interface)).copied().filter(|list| *list != NONE)
    }

    /// A list by number.
    #[inline(always)]
    pub(crate) fn list(&self, number: u16) -> Option<&List> {
        self.lists.get(usize::from(number)).map(|list| &**list)
    }
}

/// A worker's handle on the lists: wait-free reads, cheap to clone.
#[derive(Clone, Debug)]
pub struct Acls {
    table: Snapshot<AclTable>,
    workers: Arc<AtomicUsize>,
    worker: usize,
}

impl Acls {
    /// Handle of one more worker, whose counters are its own. On a control thread, the one that changes lists.
    pub fn for_worker(mut self) -> Self {
        self.worker = self.workers.fetch_add(1, Relaxed);
        for list in &self.table.get().lists {
            list.counts.open(self.worker);
        }
        self
    }

    /// The lists. Take them once for each batch: all its packets then meet the same rules.
    #[inline(always)]
    pub(crate) fn get(&mut self) -> (&AclTable, Worker) {
        (self.table.get(), Worker(self.worker))
    }
}

/// Whose counters.
#[derive(Clone, Copy)]
pub(crate) struct Worker(usize);

impl List {
    /// A worker's counters of this list.
    #[inline(always)]
    pub(crate) fn row(&self, worker: Worker) -> Row<'_> {
        Row(self.counts.row(worker.0))
    }
}

/// The lists of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclBinding {
    /// The interface.
    pub interface: IfIndex,
    /// Name of the list for packets that come in by it.
    pub input: Option<String>,
    /// Name of the list for packets that leave by it.
    pub output: Option<String>,
}

/// Why lists were refused. Those before stay in force.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AclError {
    /// Two lists of one name.
    #[error("there are two access lists \"{0}\": names must differ")]
    Twice(String),
    /// A binding to a list that does not exist.
    #[error("interface number {interface} names the access list \"{list}\", which does not exist")]
    NoList {
        /// The interface.
        interface: IfIndex,
        /// The name.
        list: String,
    },
    /// More lists than can be numbered.
    #[error("{0} access lists are too many: 65,534 is the most")]
    TooMany(usize),
    /// Too many rules.
    #[error("access list \"{list}\" has {rules} rules: {MAX_ACL_RULES} is the most")]
    TooManyRules {
        /// The list.
        list: String,
        /// Its rules.
        rules: usize,
    },
    /// Rules that stand for too many combinations.
    #[error(
        "the rules of access list \"{list}\" stand for {terms} combinations of ports and flags: {MAX_RULES} is the most; \
         name ranges of ports instead of single ones"
    )]
    TooManyTerms {
        /// The list.
        list: String,
        /// The combinations.
        terms: usize,
    },
    /// A rule that cannot be.
    #[error("rule {rule} of access list \"{list}\": {source}")]
    Rule {
        /// The list.
        list: String,
        /// The rule, counted from 1.
        rule: usize,
        /// What is wrong with it.
        source: AclRuleError,
    },
    /// The classifier refused.
    #[error("access list \"{list}\": {source}")]
    Compile {
        /// The list.
        list: String,
        /// Why.
        source: ClassifierError,
    },
}

/// A rule with what it has matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclRuleView {
    /// As text; what a list does at its end is in brackets.
    pub text: String,
    /// The operator's remark.
    pub remark: String,
    /// Packets.
    pub packets: u64,
    /// Their bytes, without FCS.
    pub bytes: u64,
}

/// A list with what its rules have matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclView {
    /// Its name.
    pub name: String,
    /// Its rules, and at the end what it does without being told.
    pub rules: Vec<AclRuleView>,
    /// Interfaces whose incoming packets it filters.
    pub inputs: Vec<IfIndex>,
    /// Interfaces whose outgoing packets it filters.
    pub outputs: Vec<IfIndex>,
    /// Bytes that lookups may touch.
    pub lookup_bytes: usize,
}

/// The writing half: one owner, on a control thread.
#[derive(Debug)]
pub struct AclWriter {
    table: Publisher<AclTable>,
    workers: Arc<AtomicUsize>,
}

impl Default for AclWriter {
    fn default() -> Self {
        AclWriter { table: Publisher::new(AclTable::default()), workers: Arc::default() }
    }
}

impl AclWriter {
    /// A handle for readers; each worker's graph makes it its own by [`Acls::for_worker`].
    pub fn reader(&self) -> Acls {
        Acls { table: self.table.reader(), workers: self.workers.clone(), worker: usize::MAX }
    }

    /// Whether [`replace`](Self::replace) would take them, short of compiling.
    pub fn check(acls: &[Acl], bindings: &[AclBinding]) -> Result<(), AclError> {
        if acls.len() >= usize::from(NONE) {
            return Err(AclError::TooMany(acls.len()));
        }
        let mut names = HashSet::new();
        if let Some(twice) = acls.iter().find(|acl| !names.insert(acl.name.as_str())) {
            return Err(AclError::Twice(twice.name.clone()));
        }
        for binding in bindings {
            for name in binding.input.iter().chain(&binding.output) {
                if !names.contains(name.as_str()) {
                    return Err(AclError::NoList { interface: binding.interface, list: name.clone() });
                }
            }
        }
        acls.iter().try_for_each(List::check)
    }

    /// Replaces all lists and bindings at once. Lists that are the same as before keep their counters and are not compiled
    /// again; those of others begin at 0. On an error nothing changes.
    pub fn replace(&mut self, acls: Vec<Acl>, bindings: &[AclBinding]) -> Result<(), AclError> {
        Self::check(&acls, bindings)?;
        let generation = self.table.current().generation.wrapping_add(1);
        let mut table = AclTable { generation, ..AclTable::default() };
        for acl in acls {
            let same = self.table.current().lists.iter().find(|list| list.acl == acl);
            table.lists.push(match same {
                Some(list) => list.clone(),
                None => Arc::new(List::compile(acl)?),
            });
        }
        for binding in bindings {
            let sides = [(&binding.input, &mut table.inputs), (&binding.output, &mut table.outputs)];
            for (name, side) in sides {
                let Some(name) = name else { continue };
                let number =
                    table.lists.iter().position(|list| list.acl.name == *name).ok_or_else(|| {
                        AclError::NoList { interface: binding.interface, list: name.clone() }
                    })?;
                let at = usize::from(binding.interface);
                side.resize(side.len().max(at + 1), NONE);
                if let Some(slot) = side.get_mut(at) {
                    *slot = number as u16;
                }
            }
        }
        for list in &table.lists {
            (0..self.workers.load(Relaxed)).for_each(|worker| list.counts.open(worker));
        }
        self.table.publish(table);
        Ok(())
    }

    /// Drops replaced lists that no worker reads any more.
    pub fn collect(&mut self) {
        self.table.collect();
    }

    /// Name of the list of a sample, and the text of its rule; `None` where the lists have changed since.
    pub(crate) fn names(&self, hit: &AclHit) -> Option<(String, String)> {
        let table = self.table.current();
        let acl = &table.list(hit.list).filter(|_| table.generation == hit.generation)?.acl;
        Some((acl.name.clone(), rule_text(acl, hit.rule as usize)))
    }

    /// All lists with their counters.
    pub fn views(&self) -> Vec<AclView> {
        let table = self.table.current();
        let bound = |side: &[u16], number: usize| {
            let of = side.iter().enumerate().filter(|(_, list)| usize::from(**list) == number);
            of.map(|(interface, _)| interface as IfIndex).collect()
        };
        let view = |(number, list): (usize, &Arc<List>)| AclView {
            name: list.acl.name.clone(),
            rules: (0..list.acl.rules.len() + IMPLICIT)
                .map(|rule| {
                    let (packets, bytes) = list.counts.sum(rule);
                    let remark = list.acl.rules.get(rule).map(|r| r.remark.clone()).unwrap_or_default();
                    AclRuleView { text: rule_text(&list.acl, rule), remark, packets, bytes }
                })
                .filter(|rule| !rule.text.is_empty())
                .collect(),
            inputs: bound(&table.inputs, number),
            outputs: bound(&table.outputs, number),
            lookup_bytes: list.ip4.lookup_bytes() + list.ip6.lookup_bytes(),
        };
        table.lists.iter().enumerate().map(view).collect()
    }
}

/// A rule as text; nothing for one that this list has not.
fn rule_text(acl: &Acl, rule: usize) -> String {
    let n = acl.rules.len();
    match acl.rules.get(rule) {
        Some(rule) => rule.to_string(),
        None if rule == n && acl.default == AclAction::Permit => String::new(),
        None if rule == n => "(permit icmp6 any any nd-ns, nd-na)".into(),
        None => format!("({} everything else)", acl.default.name()),
    }
}
