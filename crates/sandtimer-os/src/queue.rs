//! A queue whose two sides never wait for each other, for threads of different priority.
//!
//! A thread that is preempted in the middle of [`Sender::send`] holds up neither the receiver nor
//! other senders: a message is linked in by one compare-and-swap, and what was sent so far is taken
//! by one swap. With the standard library's channel both spin until such a thread runs again, which
//! it cannot while a real-time thread that spins has its processor.
//!
//! The allocator has locks that threads of any priority hold. A real-time thread therefore passes
//! the nodes of what it has received to [`NodePool`], which another thread frees, and sends with
//! a [`ReservedSender`], whose nodes were allocated before.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// A message, and the one that was sent before it. Without a message: a node to be used again.
struct QueueNode<T> {
    message: Option<T>,
    before: *mut QueueNode<T>,
}

impl<T> QueueNode<T> {
    fn allocate(message: Option<T>) -> *mut Self {
        Box::into_raw(Box::new(QueueNode { message, before: ptr::null_mut() }))
    }
}

/// What was sent and not taken, the newest first.
struct Stack<T> {
    newest: AtomicPtr<QueueNode<T>>,
}

// SAFETY: the stack owns its nodes. Each message is moved in by one thread and out by one thread;
// none is shared.
unsafe impl<T: Send> Send for Stack<T> {}
// SAFETY: as above; the pointer is only ever used through atomic operations.
unsafe impl<T: Send> Sync for Stack<T> {}

/// In place of the newest node: there is no receiver any more.
fn closed<T>() -> *mut QueueNode<T> {
    ptr::dangling_mut()
}

impl<T> Stack<T> {
    fn new() -> Self {
        Stack { newest: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Links a node in, which the stack owns from then on. False where it is closed: the node is
    /// still the caller's.
    fn push(&self, node: *mut QueueNode<T>) -> bool {
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            if newest == closed() {
                return false;
            }
            // SAFETY: the caller's node; no other thread knows it before the exchange succeeds.
            unsafe { (*node).before = newest };
            // Another thread's success is the only reason to try again: a thread that is preempted
            // here delays no other thread.
            match self.newest.compare_exchange_weak(newest, node, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => newest = now,
            }
        }
    }

    /// Takes all nodes and leaves `instead`.
    fn take(&self, instead: *mut QueueNode<T>) -> NodeChain<T> {
        // Acquire: the exchanges of all senders form one release sequence, so their nodes are read
        // whole.
        NodeChain(self.newest.swap(instead, Ordering::Acquire))
    }
}

impl<T> Drop for Stack<T> {
    fn drop(&mut self) {
        let newest = *self.newest.get_mut();
        if newest != closed() {
            drop(NodeChain(newest));
        }
    }
}

/// Nodes that belong to one thread.
struct NodeChain<T>(*mut QueueNode<T>);

// SAFETY: it owns the nodes, whose messages may be moved between threads.
unsafe impl<T: Send> Send for NodeChain<T> {}

impl<T> NodeChain<T> {
    /// Takes the first node, which is the caller's to link in again or to free.
    fn pop(&mut self) -> Option<*mut QueueNode<T>> {
        if self.0.is_null() {
            return None;
        }
        let node = self.0;
        // SAFETY: a node that `Node::allocate` gave, which nothing else points to: it was taken out
        // of its stack.
        self.0 = unsafe { (*node).before };
        Some(node)
    }

    /// The same nodes in the opposite order.
    fn reversed(mut self) -> Self {
        let mut turned = NodeChain(ptr::null_mut());
        while let Some(node) = self.pop() {
            // SAFETY: as in `pop`; the node stays allocated and moves from one list to the other.
            unsafe { (*node).before = turned.0 };
            turned.0 = node;
        }
        turned
    }
}

impl<T> Drop for NodeChain<T> {
    fn drop(&mut self) {
        while let Some(node) = self.pop() {
            // SAFETY: as in `pop`; it is used nowhere from here on.
            drop(unsafe { Box::from_raw(node) });
        }
    }
}

/// Nodes without messages, for other threads to use again or to free.
pub struct NodePool<T>(Arc<NodePoolState<T>>);

struct NodePoolState<T> {
    nodes: Stack<T>,
    /// How many there are, and may be. Approximate: a node is counted before it is linked in.
    count: AtomicUsize,
    most: usize,
}

impl<T> Clone for NodePool<T> {
    fn clone(&self) -> Self {
        NodePool(self.0.clone())
    }
}

impl<T> std::fmt::Debug for NodePool<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SpareNodes")
    }
}

impl<T: Send> NodePool<T> {
    /// None yet. With more than `most` of them, a receiver frees the nodes of what it receives
    /// itself.
    pub fn with_max(most: usize) -> Self {
        NodePool(Arc::new(NodePoolState { nodes: Stack::new(), count: AtomicUsize::new(0), most }))
    }

    /// Allocates this many nodes in advance.
    pub fn with_reserve(self, count: usize) -> Self {
        (0..count).for_each(|_| self.add(QueueNode::allocate(None)));
        self
    }

    /// Frees all that there are.
    pub fn free(&self) {
        drop(self.take());
    }

    /// Links in a node without a message, which is the caller's.
    fn add(&self, node: *mut QueueNode<T>) {
        let most = self.0.most;
        let counted = self
            .0
            .count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count < most).then_some(count + 1));
        if counted.is_ok() {
            // Of nodes without messages there is no receiver that closes the stack.
            self.0.nodes.push(node);
        } else {
            // SAFETY: the caller's node, which is in no list.
            drop(unsafe { Box::from_raw(node) });
        }
    }

    fn take(&self) -> NodeChain<T> {
        self.0.count.store(0, Ordering::Relaxed);
        self.0.nodes.take(ptr::null_mut())
    }
}

/// The sending side; any number of threads has a clone.
pub struct Sender<T>(Arc<Stack<T>>);

/// A sender that allocates nothing as long as spare nodes are left.
pub struct ReservedSender<T> {
    sender: Sender<T>,
    pool: NodePool<T>,
    /// Of these, the ones that this sender has taken.
    own: NodeChain<T>,
}

/// The receiving side.
pub struct Receiver<T> {
    stack: Arc<Stack<T>>,
    /// What was taken and not handed out, the oldest first.
    taken: NodeChain<T>,
    pool: NodePool<T>,
}

/// A queue without messages.
pub fn queue<T: Send>() -> (Sender<T>, Receiver<T>) {
    queue_with(NodePool::with_max(0))
}

/// A queue without messages, whose receiver adds the nodes of what it has received to `spare`.
pub fn queue_with<T: Send>(pool: NodePool<T>) -> (Sender<T>, Receiver<T>) {
    let stack = Arc::new(Stack::new());
    (Sender(stack.clone()), Receiver { stack, taken: NodeChain(ptr::null_mut()), pool })
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender(self.0.clone())
    }
}

impl<T> std::fmt::Debug for Sender<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Sender")
    }
}

impl<T> std::fmt::Debug for ReservedSender<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ReservedSender")
    }
}

impl<T> std::fmt::Debug for Receiver<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Receiver")
    }
}

impl<T: Send> Sender<T> {
    /// Sends a message; returns it if the receiver has been dropped.
    pub fn send(&self, message: T) -> Result<(), T> {
        self.send_in(QueueNode::allocate(Some(message)))
    }

    /// Sends the message of a node, which is the caller's.
    fn send_in(&self, node: *mut QueueNode<T>) -> Result<(), T> {
        if self.0.push(node) {
            return Ok(());
        }
        // SAFETY: the caller's node, which was not linked in.
        let node = unsafe { Box::from_raw(node) };
        node.message.map_or(Ok(()), Err)
    }

    /// A sender with nodes that were allocated before.
    pub fn with_nodes(self, pool: NodePool<T>) -> ReservedSender<T> {
        ReservedSender { sender: self, pool, own: NodeChain(ptr::null_mut()) }
    }
}

impl<T> Sender<T> {
    /// Whether there is no receiver any more.
    pub fn is_closed(&self) -> bool {
        self.0.newest.load(Ordering::Acquire) == closed()
    }
}

impl<T: Send> ReservedSender<T> {
    /// As [`Sender::send`].
    pub fn send(&mut self, message: T) -> Result<(), T> {
        if self.own.0.is_null() {
            self.own = self.pool.take();
        }
        let Some(node) = self.own.pop() else { return self.sender.send(message) };
        // SAFETY: taken out of the list, and so this sender's alone.
        unsafe { (*node).message = Some(message) };
        self.sender.send_in(node)
    }
}

impl<T: Send> Receiver<T> {
    /// The oldest message, if there is one. Never waits.
    pub fn try_receive(&mut self) -> Option<T> {
        if self.taken.0.is_null() && !self.stack.newest.load(Ordering::Relaxed).is_null() {
            self.taken = self.stack.take(ptr::null_mut()).reversed();
        }
        let node = self.taken.pop()?;
        // SAFETY: taken out of the list, and so this receiver's alone.
        let message = unsafe { (*node).message.take() };
        self.pool.add(node);
        message
    }
}

impl<T> Drop for Receiver<T> {
    /// Drops what was not received, and all that is sent from now on.
    fn drop(&mut self) {
        drop(self.stack.take(closed()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn queue_preserves_each_senders_sequence() {
        const SENDERS: usize = 4;
        const MESSAGES_PER_SENDER: usize = 50_000;
        let (sender, mut receiver) = queue();
        std::thread::scope(|scope| {
            for name in 0..SENDERS {
                let sender = sender.clone();
                scope.spawn(move || {
                    (0..MESSAGES_PER_SENDER).for_each(|number| sender.send((name, number)).expect("open"))
                });
            }
            let (mut next, mut left) = ([0; SENDERS], SENDERS * MESSAGES_PER_SENDER);
            while left > 0 {
                while let Some((name, number)) = receiver.try_receive() {
                    assert_eq!(number, next[name]);
                    next[name] += 1;
                    left -= 1;
                }
                std::thread::yield_now();
            }
        });
        assert!(receiver.try_receive().is_none());
    }

    #[test]
    fn queue_without_receiver_drops_every_message_once() {
        struct DropCounter(Arc<AtomicUsize>);
        impl Drop for DropCounter {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let dropped = Arc::new(AtomicUsize::new(0));
        let (sender, mut receiver) = queue();
        let send = |count| (0..count).filter(|_| sender.send(DropCounter(dropped.clone())).is_ok()).count();
        assert_eq!(send(3), 3);
        drop(receiver.try_receive());
        assert_eq!(send(2), 2);
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
        drop(receiver);
        assert_eq!(dropped.load(Ordering::SeqCst), 5);
        assert_eq!(send(2), 0);
        assert_eq!(dropped.load(Ordering::SeqCst), 7);
    }

    /// A sender that stops between its two steps, as one that is preempted there does: with the
    /// standard library's channel the receiver would not return.
    #[test]
    fn queue_with_stopped_sender_is_still_received() {
        let (sender, mut receiver) = queue();
        // What a stopped sender has done by then: it has a node, and has read the newest.
        let node = QueueNode::allocate(Some(1));
        let before = sender.0.newest.load(Ordering::Relaxed);
        sender.send(2).expect("open");
        assert_eq!(receiver.try_receive(), Some(2));
        assert_eq!(receiver.try_receive(), None);
        // It continues, and what it has read is by chance the newest still.
        // SAFETY: made above, not linked in yet.
        unsafe { (*node).before = before };
        assert!(sender.0.newest.compare_exchange(before, node, Ordering::Release, Ordering::Relaxed).is_ok());
        assert_eq!(receiver.try_receive(), Some(1));
    }

    /// One thread adds more than are kept, and another takes them all: the count never passes the
    /// bound, below zero least of all.
    #[test]
    fn pool_count_stays_within_bound_while_taken() {
        const MAX_NODES: usize = 4;
        let pool: NodePool<u32> = NodePool::with_max(MAX_NODES);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    pool.free();
                }
            });
            let largest = (0..300_000).map(|_| {
                pool.add(QueueNode::allocate(None));
                pool.0.count.load(Ordering::Relaxed)
            });
            let largest = largest.max();
            is_over.store(true, Ordering::Relaxed);
            assert!(largest <= Some(MAX_NODES), "{largest:?}");
        });
    }

    /// The nodes of one direction circulate: what the receiver has received, the sender sends with.
    #[test]
    fn queue_with_reserve_uses_its_nodes_again() {
        let pool = NodePool::with_max(8).with_reserve(2);
        let (sender, mut receiver) = queue_with(pool.clone());
        let mut reserved = sender.clone().with_nodes(pool.clone());
        let count = || pool.0.count.load(Ordering::SeqCst);
        for number in 0..100 {
            assert_eq!(reserved.send(number), Ok(()));
            assert_eq!(receiver.try_receive(), Some(number));
            // The first send takes both, and each receipt returns one.
            assert!((1..=2).contains(&count()), "{}", count());
        }
        // Nodes of other senders are kept as well, up to the bound.
        (0..100).for_each(|number| assert_eq!(sender.send(number), Ok(())));
        assert_eq!(std::iter::from_fn(|| receiver.try_receive()).count(), 100);
        assert_eq!(count(), 8);
        pool.free();
        assert_eq!(count(), 0);
        assert_eq!(reserved.send(7), Ok(()));
        drop(receiver);
        assert_eq!(reserved.send(8), Err(8));
    }
}
