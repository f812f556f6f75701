//! Which pages hold what follows which tokens? A tree of whole blocks, so that sequences that begin alike find them.

use std::collections::HashMap;

use crate::engine::backend::PAGE;
use crate::ids::TokenId;

/// The tokens of a block.
pub(super) type Block = [TokenId; PAGE];

/// A block of tokens behind all those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct NodeId(u32);

/// Blocks that sequences have, or whose pages are kept. Blocks are compared by all their tokens.
pub(super) struct Chain {
    groups: usize,
    nodes: Vec<Node>,
    /// By node and group, the page that holds its keys and values.
    pages: Vec<Option<u32>>,
    unused: Vec<NodeId>,
    by_tokens: HashMap<(Option<NodeId>, Block), NodeId>,
    /// Blocks that there is room for beside those that are known.
    promised: usize,
}

struct Node {
    parent: Option<NodeId>,
    tokens: Block,
    /// Sequences that have it, blocks behind it, and pages that hold it.
    users: usize,
}

impl Chain {
    /// No blocks yet, of so many groups of pages.
    pub(super) fn new(groups: usize) -> Self {
        let (nodes, pages, unused, by_tokens) = Default::default();
        Self { groups, nodes, pages, unused, by_tokens, promised: 0 }
    }

    /// Makes room for so many more blocks, beside those that others were promised.
    pub(super) fn promise(&mut self, more: usize) {
        self.promised += more;
        let more = self.promised;
        self.nodes.reserve(more);
        self.pages.reserve(more * self.groups);
        self.unused.reserve(self.nodes.len() + more);
        self.by_tokens.reserve(more);
    }

    /// Takes promises back, or keeps them.
    pub(super) fn unpromise(&mut self, less: usize) {
        self.promised -= less;
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize]
    }

    /// A block's tokens.
    pub(super) fn tokens(&self, id: NodeId) -> &Block {
        &self.node(id).tokens
    }

    /// The page of a group that holds the block.
    pub(super) fn page(&self, id: NodeId, group: usize) -> Option<u32> {
        self.pages[id.0 as usize * self.groups + group]
    }

    /// The blocks that tokens begin with, as far as they are known.
    pub(super) fn find(&self, tokens: &[TokenId]) -> Vec<NodeId> {
        let mut path: Vec<NodeId> = Vec::new();
        for block in tokens.as_chunks::<PAGE>().0 {
            match self.by_tokens.get(&(path.last().copied(), *block)) {
                Some(node) => path.push(*node),
                None => break,
            }
        }
        path
    }

    /// A block behind another one, for a sequence, which [gives it up](Self::release) again.
    pub(super) fn take(&mut self, parent: Option<NodeId>, tokens: &Block) -> NodeId {
        if let Some(id) = self.by_tokens.get(&(parent, *tokens)).copied() {
            self.keep(id);
            return id;
        }
        let node = Node { parent, tokens: *tokens, users: 1 };
        let id = match self.unused.pop() {
            Some(id) => {
                *self.node_mut(id) = node;
                id
            }
            None => {
                self.nodes.push(node);
                self.pages.resize(self.nodes.len() * self.groups, None);
                NodeId((self.nodes.len() - 1) as u32)
            }
        };
        self.by_tokens.insert((parent, *tokens), id);
        if let Some(parent) = parent {
            self.keep(parent);
        }
        id
    }

    /// Counts one more user.
    pub(super) fn keep(&mut self, id: NodeId) {
        self.node_mut(id).users += 1;
    }

    /// Counts one user less; a block without users is forgotten.
    pub(super) fn release(&mut self, id: NodeId) {
        let mut id = id;
        loop {
            let node = self.node_mut(id);
            node.users -= 1;
            if node.users > 0 {
                return;
            }
            let (parent, tokens) = (node.parent, node.tokens);
            self.by_tokens.remove(&(parent, tokens));
            self.unused.push(id);
            match parent {
                Some(parent) => id = parent,
                None => return,
            }
        }
    }

    /// Says that a page holds the block, which has none of that group yet.
    pub(super) fn label(&mut self, id: NodeId, group: usize, page: u32) {
        self.pages[id.0 as usize * self.groups + group] = Some(page);
        self.keep(id);
    }

    /// Says that the block's page holds something else from now on.
    pub(super) fn unlabel(&mut self, id: NodeId, group: usize) {
        self.pages[id.0 as usize * self.groups + group] = None;
        self.release(id);
    }

    /// The block before.
    #[cfg(test)]
    pub(super) fn parent(&self, id: NodeId) -> Option<NodeId> {
        self.node(id).parent
    }

    /// Blocks that are known.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_tokens.len()
    }
}
