//! Which CPUs tester and router run on.

use anyhow::Result;
use linerate_linux::cpus::Cpus;
use linerate_linux::thread;

/// Two CPUs, or one for both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// The tester's.
    pub(crate) tester: usize,
    /// The worker's; `None`: shares the tester's.
    pub(crate) worker: Option<usize>,
}

impl Placement {
    /// Chooses among the CPUs that this process may use: two that are not siblings of one core where there are such.
    pub(crate) fn choose() -> Result<Self> {
        let allowed: Vec<usize> = thread::allowed_cpus()?.iter().collect();
        let topology = Cpus::at("/sys");
        Ok(Self::among(&allowed, |a, b| topology.siblings(a).contains(b)))
    }

    /// Whether both share a CPU.
    pub(crate) fn one(&self) -> bool {
        self.worker.is_none()
    }

    fn among(allowed: &[usize], siblings: impl Fn(usize, usize) -> bool) -> Self {
        let tester = allowed.first().copied().unwrap_or(0);
        let others = || allowed.iter().copied().skip(1);
        let worker = others().find(|c| !siblings(tester, *c)).or_else(|| others().next());
        Placement { tester, worker }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_cores_are_preferred_and_one_cpu_is_shared() {
        let pairs = |a: usize, b: usize| a / 2 == b / 2;
        assert_eq!(Placement::among(&[0, 1, 2, 3], pairs), Placement { tester: 0, worker: Some(2) });
        assert_eq!(Placement::among(&[4, 5], pairs), Placement { tester: 4, worker: Some(5) });
        assert_eq!(Placement::among(&[3], pairs), Placement { tester: 3, worker: None });
        assert!(Placement::among(&[3], pairs).one());
    }
}
