//! How deep containers lie in one another.
//!
//! What recurses over a value in C without checking the stack (hashing a tuple, freeing a deque) is
//! bounded by this, and so is whatever the caller does with the value. A container's depth is known
//! when it is filled before it is put into another, as every pickle of a tree or a shared value
//! does. Only a cycle puts a container away first and fills it later; then the depth of what holds
//! it is not known any more, and the whole graph is checked once, at the end.

use super::rejection::{Result, refuse};

/// Deeper than any value that a pickler, which recurses, can write with the interpreter's own
/// limits.
const MAX_DEPTH: u32 = 1000;

/// A container, or what cannot hold anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NestingNode(u32);

impl NestingNode {
    /// What holds no container and is none.
    pub(super) const LEAF: Self = Self(0);
    /// An immutable container of leaves. All are one: nothing can change about them.
    const FLAT: Self = Self(1);
}

#[derive(Debug)]
struct NodeState {
    depth: u32,
    /// It lies in another container.
    placed: bool,
}

#[derive(Debug)]
pub(super) struct Nesting {
    states: Vec<NodeState>,
    /// (outer, inner), without leaves and flat containers.
    edges: Vec<(u32, u32)>,
    /// A container grew deeper after it had been placed.
    grew_late: bool,
}

impl Nesting {
    pub(super) fn new() -> Self {
        let state = |depth| NodeState { depth, placed: false };
        Self { states: vec![state(0), state(1)], edges: Vec::new(), grew_late: false }
    }

    pub(super) fn depth(&self, node: NestingNode) -> u32 {
        self.states[node.0 as usize].depth
    }

    /// Whether it lies in another container already.
    pub(super) fn is_placed(&self, node: NestingNode) -> bool {
        self.states[node.0 as usize].placed
    }

    /// A new container that can still be filled.
    pub(super) fn container(&mut self) -> Result<NestingNode> {
        let Ok(index) = u32::try_from(self.states.len()) else {
            return refuse("the result has too many containers");
        };
        self.states.push(NodeState { depth: 1, placed: false });
        Ok(NestingNode(index))
    }

    /// A container with all it will ever hold.
    pub(super) fn full(
        &mut self,
        inner: impl IntoIterator<Item = NestingNode> + Clone,
    ) -> Result<NestingNode> {
        if inner.clone().into_iter().all(|node| node == NestingNode::LEAF) {
            return Ok(NestingNode::FLAT);
        }
        let outer = self.container()?;
        inner.into_iter().try_for_each(|node| self.nest(outer, node))?;
        Ok(outer)
    }

    /// Puts `inner` into `outer`.
    pub(super) fn nest(&mut self, outer: NestingNode, inner: NestingNode) -> Result<()> {
        if inner == NestingNode::LEAF {
            return Ok(());
        }
        let depth = self.depth(inner) + 1;
        if inner != NestingNode::FLAT {
            self.states[inner.0 as usize].placed = true;
            self.edges.push((outer.0, inner.0));
        }
        let state = &mut self.states[outer.0 as usize];
        if depth > state.depth {
            state.depth = depth;
            self.grew_late |= state.placed;
        }
        check(depth)
    }

    /// Checks what could not be known on the way.
    pub(super) fn finish(self) -> Result<()> {
        if self.grew_late { check(Graph::new(&self).deepest()) } else { Ok(()) }
    }
}

fn check(depth: u32) -> Result<()> {
    if depth <= MAX_DEPTH {
        return Ok(());
    }
    refuse(format!("the result's containers lie more than {MAX_DEPTH} deep in one another"))
}

/// Which containers hold which, as ranges of one list.
struct Graph {
    starts: Vec<usize>,
    inner: Vec<u32>,
}

impl Graph {
    fn new(nesting: &Nesting) -> Self {
        let mut starts = vec![0; nesting.states.len() + 1];
        for (outer, _) in &nesting.edges {
            starts[*outer as usize + 1] += 1;
        }
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut next = starts.clone();
        let mut inner = vec![0; nesting.edges.len()];
        for (outer, node) in &nesting.edges {
            let slot = &mut next[*outer as usize];
            inner[*slot] = *node;
            *slot += 1;
        }
        Self { starts, inner }
    }

    /// The longest way down, where one that comes back to a container it has come through ends
    /// there.
    fn deepest(&self) -> u32 {
        let count = self.starts.len() - 1;
        let mut depths = vec![0; count];
        let mut finished = vec![false; count];
        let mut open = Vec::new();
        for root in 0..count {
            if depths[root] == 0 {
                depths[root] = 1;
                open.push((root, self.starts[root]));
            }
            while let Some((outer, edge)) = open.last_mut() {
                let outer = *outer;
                if *edge == self.starts[outer + 1] {
                    finished[outer] = true;
                    open.pop();
                    if let Some((above, _)) = open.last() {
                        depths[*above] = depths[*above].max(depths[outer] + 1);
                    }
                    continue;
                }
                let inner = self.inner[*edge] as usize;
                *edge += 1;
                if depths[inner] == 0 {
                    depths[inner] = 1;
                    open.push((inner, self.starts[inner]));
                } else if finished[inner] {
                    depths[outer] = depths[outer].max(depths[inner] + 1);
                }
            }
        }
        depths.into_iter().max().unwrap_or(0)
    }
}
