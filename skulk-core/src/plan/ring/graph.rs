//! Which nodes could be neighbours in a ring? A directed graph over positions, and its parts in which
//! every node reaches every other.

/// Links between positions.
pub(super) enum Graph {
    /// Each of these positions is linked with each other of them, both ways.
    Complete(Vec<usize>),
    /// Whom each is linked to, ascending.
    Links(Vec<Vec<usize>>),
}

impl Graph {
    /// The graph of these links between `n` positions; those from a position to itself do not count.
    pub(super) fn new(n: usize, links: impl Iterator<Item = (usize, usize)>) -> Self {
        let mut out = vec![Vec::new(); n];
        for (a, b) in links.filter(|(a, b)| a != b) {
            out[a].push(b);
        }
        for sinks in &mut out {
            sinks.sort_unstable();
            sinks.dedup();
        }
        if n > 1 && out.iter().all(|sinks| sinks.len() == n - 1) {
            return Graph::Complete((0..n).collect());
        }
        Graph::Links(out)
    }

    /// The links of `self` that go both ways.
    pub(super) fn mutual(self) -> Self {
        match self {
            Graph::Complete(_) => self,
            Graph::Links(ref out) => {
                let pairs = out.iter().enumerate().flat_map(|(a, sinks)| sinks.iter().map(move |&b| (a, b)));
                Graph::new(out.len(), pairs.filter(|&(a, b)| self.linked(b, a)))
            }
        }
    }

    pub(super) fn linked(&self, a: usize, b: usize) -> bool {
        match self {
            Graph::Complete(members) => {
                a != b && members.binary_search(&a).is_ok() && members.binary_search(&b).is_ok()
            }
            Graph::Links(out) => out[a].binary_search(&b).is_ok(),
        }
    }

    /// Links in all.
    pub(super) fn n_links(&self) -> usize {
        match self {
            Graph::Complete(members) => members.len() * members.len().saturating_sub(1),
            Graph::Links(out) => out.iter().map(Vec::len).sum(),
        }
    }

    /// Parts of two and more positions in which each reaches each other, ascending.
    pub(super) fn components(&self) -> Vec<Vec<usize>> {
        let out = match self {
            Graph::Complete(members) if members.len() > 1 => return vec![members.clone()],
            Graph::Complete(_) => return Vec::new(),
            Graph::Links(out) => out,
        };
        let mut components = strong_components(out);
        components.retain(|part| part.len() > 1);
        components.sort_unstable();
        components
    }

    /// Whether each of these is linked with each other of them.
    pub(super) fn is_complete(&self, part: &[usize]) -> bool {
        match self {
            Graph::Complete(_) => true,
            Graph::Links(out) => part.iter().all(|&a| {
                out[a].len() + 1 >= part.len() && part.iter().all(|&b| a == b || self.linked(a, b))
            }),
        }
    }

    /// The shortest way from one position to another but by the link between them, both ends included;
    /// the first of several by position.
    pub(super) fn detour(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        let Graph::Links(out) = self else { return None };
        let mut before = vec![usize::MAX; out.len()];
        let mut queue = std::collections::VecDeque::from([from]);
        before[from] = from;
        while let Some(a) = queue.pop_front() {
            for b in out[a].iter().copied().filter(|&b| (a, b) != (from, to)) {
                if before[b] != usize::MAX {
                    continue;
                }
                before[b] = a;
                if b == to {
                    let mut path = vec![to];
                    while path.last() != Some(&from) {
                        path.push(before[path[path.len() - 1]]);
                    }
                    path.reverse();
                    return Some(path);
                }
                queue.push_back(b);
            }
        }
        None
    }
}

/// Kosaraju's algorithm, without recursion: the depth of a search is the number of nodes.
fn strong_components(out: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut into = vec![Vec::new(); out.len()];
    for (a, sinks) in out.iter().enumerate() {
        sinks.iter().for_each(|&b| into[b].push(a));
    }
    let mut finished = Vec::with_capacity(out.len());
    search(out, 0..out.len(), |order| finished.extend(order));
    let mut components = Vec::new();
    search(&into, finished.into_iter().rev(), |mut part| {
        part.sort_unstable();
        components.push(part);
    });
    components
}

/// Searches in depth from each of the starts that is not yet found, and gives what each found, in the order
/// in which it was finished.
fn search(out: &[Vec<usize>], starts: impl Iterator<Item = usize>, mut each: impl FnMut(Vec<usize>)) {
    let mut seen = vec![false; out.len()];
    for start in starts {
        if std::mem::replace(&mut seen[start], true) {
            continue;
        }
        let (mut done, mut stack) = (Vec::new(), vec![(start, out[start].iter())]);
        while let Some((a, sinks)) = stack.last_mut() {
            match sinks.by_ref().copied().find(|&b| !seen[b]) {
                Some(b) => {
                    seen[b] = true;
                    stack.push((b, out[b].iter()));
                }
                None => {
                    done.push(*a);
                    stack.pop();
                }
            }
        }
        each(done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(n: usize, links: &[(usize, usize)]) -> Graph {
        Graph::new(n, links.iter().copied())
    }

    #[test]
    fn components_reach_each_other() {
        let g = graph(6, &[(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 3), (5, 5)]);
        assert_eq!(g.components(), [vec![0, 1, 2], vec![3, 4]]);
        assert_eq!(g.mutual().components(), [[3, 4]]);
        let long = graph(5000, &(0..5000).map(|i| (i, (i + 1) % 5000)).collect::<Vec<_>>());
        assert_eq!(long.components().len(), 1);
    }

    #[test]
    fn detours_leave_the_link_out() {
        let g = graph(4, &[(0, 1), (1, 0), (1, 2), (2, 3), (3, 0)]);
        assert_eq!(g.detour(1, 0), Some(vec![1, 2, 3, 0]));
        assert_eq!(g.detour(0, 1), None);
    }
}
