//! The wildcard classifier: ordered rules over many header fields, the first that matches wins.
//!
//! A [`Classifier`] (one owner, on a control thread) compiles a whole list of [`Rule`]s and publishes it at once; each
//! worker has a [`Reader`] and looks up its packets' [`Key`]s in batches. A batch meets one list: the old or the new.
//!
//! The compiled form is a few hash tables over masked bits of the key, found by a greedy search over the rules; cells that
//! several rules share lead to further tables, to rules compared in order, or to bit vectors. What no table takes is told
//! apart by bit vectors for all keys. Memory and building time are bounded whatever the rules are. docs/classifier.md has the
//! structure, what else was tried and the figures.

mod bits;
mod build;
mod candidates;
mod displace;
mod extract;
mod kernel;
mod key;
mod lanes;
mod lookup;
mod rule;
mod simd;
pub mod synthetic;
mod table;

pub use kernel::Kernel;
pub use key::{AddressPlace, Key, Shape, Words};
#[doc(hidden)]
pub use lanes::{Lanes, Lanes4, Lanes6};
pub use rule::{ALL_PORTS, ActionId, Fragment, Icmp, Rule, RuleError, TcpFlags, Vlan};

use crate::snapshot::{Publisher, Snapshot};
use lookup::Scratch;
use std::marker::PhantomData;
use table::Table;

/// Rules at most in one classifier.
pub const MAX_RULES: usize = 1 << 20;

/// Why a list of rules was refused. The classifier is as it was before.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ClassifierError {
    /// One of the rules cannot be.
    #[error("rule {index}: {reason}")]
    Rule {
        /// Its place, counted from 0.
        index: usize,
        /// What is wrong with it.
        reason: RuleError,
    },
    /// Too many rules.
    #[error("{0} rules are more than one classifier holds ({MAX_RULES})")]
    TooManyRules(usize),
}

/// A compiled list of rules: immutable, to be shared by any number of readers. [`Workspace::lookup_batch`] looks keys up in it.
///
/// For whoever publishes lists himself, several at once, say; [`Classifier`] does it for a single one.
#[derive(Debug)]
pub struct Compiled<A: Shape>(Table<A>);

impl<A: Shape> Compiled<A> {
    /// Compiles rules, in order of precedence; keys that match none get `no_match`.
    pub fn new(rules: &[Rule<A>], no_match: ActionId) -> Result<Self, ClassifierError> {
        if rules.len() > MAX_RULES {
            return Err(ClassifierError::TooManyRules(rules.len()));
        }
        let patterns = rules
            .iter()
            .enumerate()
            .map(|(index, rule)| {
                let pattern = rule.pattern().map_err(|reason| ClassifierError::Rule { index, reason })?;
                Ok((pattern, rule.action))
            })
            .collect::<Result<Vec<_>, ClassifierError>>()?;
        Ok(Compiled(build::build(patterns.into_iter(), no_match)))
    }

    /// Bytes that lookups may touch.
    pub fn lookup_bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// What a lookup needs besides the rules: one for each worker and address family, good for any number of lists.
#[derive(Debug)]
pub struct Workspace<A: Shape> {
    scratch: Scratch,
    kernel: Kernel,
    family: PhantomData<A>,
}

impl<A: Shape> Default for Workspace<A> {
    fn default() -> Self {
        Workspace { scratch: Scratch::new(), kernel: Kernel::best(), family: PhantomData }
    }
}

impl<A: Shape> Workspace<A> {
    /// With another kernel; one that this CPU cannot run is replaced by the portable one.
    pub fn with_kernel(kernel: Kernel) -> Self {
        let kernel = if Kernel::available().contains(&kernel) { kernel } else { Kernel::Portable };
        Workspace { scratch: Scratch::new(), kernel, family: PhantomData }
    }

    /// Classifies `keys[i]` into `out[i]`; any length, the shorter slice counts.
    #[inline]
    pub fn lookup_batch(&mut self, rules: &Compiled<A>, keys: &[Key<A>], out: &mut [ActionId]) {
        let table = &rules.0;
        match self.kernel {
            Kernel::Portable => lookup::lookup(kernel::Portable, table, &mut self.scratch, keys, out),
            Kernel::Avx2 => simd::lookup_avx2(table, &mut self.scratch, keys, out),
            Kernel::Avx512 => simd::lookup_avx512(table, &mut self.scratch, keys, out),
        }
    }
}

/// The writing half: one owner, on a control thread. Replaces the whole list of rules at a time.
#[derive(Debug)]
pub struct Classifier<A: Shape> {
    tables: Publisher<Compiled<A>>,
}

/// The reading half: one per worker. Wait-free.
#[derive(Debug)]
pub struct Reader<A: Shape> {
    table: Snapshot<Compiled<A>>,
    workspace: Workspace<A>,
}

impl<A: Shape> Classifier<A> {
    /// A classifier without rules: every key gets `no_match`.
    pub fn new(no_match: ActionId) -> Self {
        Classifier { tables: Publisher::new(Compiled(build::build([].into_iter(), no_match))) }
    }

    /// Replaces all rules.
    pub fn replace(&mut self, rules: &[Rule<A>], no_match: ActionId) -> Result<(), ClassifierError> {
        self.tables.publish(Compiled::new(rules, no_match)?);
        Ok(())
    }

    /// A reader.
    pub fn reader(&self) -> Reader<A> {
        Reader { table: self.tables.reader(), workspace: Workspace::default() }
    }

    /// Bytes that lookups may touch.
    pub fn lookup_bytes(&self) -> usize {
        self.tables.current().lookup_bytes()
    }

    /// What [`Self::lookup_bytes`] is at most for so many rules, whatever they are: some 700 bytes a rule for IPv4.
    pub fn most_lookup_bytes(rules: usize) -> usize {
        build::bytes_at_most::<A>(rules)
    }
}

impl<A: Shape> Reader<A> {
    /// The same with another kernel; one that this CPU cannot run is replaced by the portable one.
    pub fn with_kernel(mut self, kernel: Kernel) -> Self {
        self.workspace = Workspace::with_kernel(kernel);
        self
    }

    /// Classifies `keys[i]` into `out[i]`; any length, the shorter slice counts.
    #[inline]
    pub fn lookup_batch(&mut self, keys: &[Key<A>], out: &mut [ActionId]) {
        self.workspace.lookup_batch(self.table.get(), keys, out);
    }
}
