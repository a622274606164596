//! Hash and displace: no two products of a node's rules share a cell, in a table that is hardly larger than they are many.
//!
//! Products are hashed to groups of a few; the largest group first, each takes the first displacement that moves all its
//! products (exclusive or) to cells that are free (Belazzougui, Botelho, Dietzfelbinger, ESA 2009).

use super::table::Node;

/// Displacements that are tried for a group at most; it shares cells where none fits.
const TRIES: u32 = 4096;

/// How many cells so many products get, as a logarithm: two to four fifths of them are used.
pub(super) fn cells_log2(products: usize) -> u32 {
    (products + products / 4).next_power_of_two().trailing_zeros().clamp(3, 20)
}

/// How many groups there are for so many cells: about two products in each.
pub(super) fn groups(log2: u32) -> usize {
    1 << log2.saturating_sub(2)
}

/// Finds the displacements of a node with `1 << log2` cells.
pub(super) fn displace(node: &mut Node, products: &[u64], log2: u32, displacements: &mut Vec<u32>) {
    let groups = groups(log2);
    node.groups = displacements.len() as u32;
    node.group_shift = 64 - groups.trailing_zeros();
    displacements.resize(displacements.len() + groups, 0);
    let mut of: Vec<(usize, u32)> = products
        .iter()
        .map(|&product| (node.group(product, node.group_shift), (product >> (64 - log2)) as u32))
        .collect();
    of.sort_unstable();
    let mut groups: Vec<&[(usize, u32)]> = of.chunk_by(|a, b| a.0 == b.0).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    let mut taken = vec![false; 1 << log2];
    for group in groups {
        let is_free = |by: u32| group.iter().all(|(_, at)| !taken.get((at ^ by) as usize).is_none_or(|t| *t));
        let by = (0..TRIES.min(1 << log2)).find(|&by| is_free(by)).unwrap_or(0);
        for (_, at) in group {
            if let Some(taken) = taken.get_mut((at ^ by) as usize) {
                *taken = true;
            }
        }
        if let Some(to) = group.first().and_then(|(number, _)| displacements.get_mut(*number)) {
            *to = by;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classifier::extract::Extractor;

    #[test]
    fn products_of_few_and_many_rules_have_cells_of_their_own() {
        for n in [16usize, 100, 3_000, 13_000] {
            let products: Vec<u64> = (1..=n as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
            let log2 = cells_log2(n);
            let mut node = Extractor::hash([0, 0], [u64::MAX, 0], 0).node(log2, 5);
            let mut displacements = vec![7; 3];
            displace(&mut node, &products, log2, &mut displacements);
            let mut cells: Vec<usize> = products.iter().map(|p| node.cell(*p, &displacements)).collect();
            cells.sort_unstable();
            cells.dedup();
            assert_eq!(cells.len(), n);
            assert!(cells.iter().all(|cell| (5..5 + (1 << log2)).contains(cell)));
            assert_eq!(displacements.len(), 3 + groups(log2));
        }
    }
}
