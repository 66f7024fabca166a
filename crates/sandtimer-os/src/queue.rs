//! A queue whose two sides never wait for each other, for threads of different priority.
//!
//! A thread that is preempted in the middle of [`Sender::send`] holds up neither the receiver nor other senders: a message is
//! linked in by one compare-and-swap, and what was sent so far is taken by one swap. With the standard library's channel both
//! spin until such a thread runs again, which it cannot while a real-time thread that spins has its processor.
//!
//! The allocator has locks that threads of any priority hold. A real-time thread therefore passes the nodes of what it has received
//! to [`SpareNodes`], which another thread frees, and sends with a [`ReservedSender`], whose nodes were allocated before.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// A message, and the one that was sent before it. Without a message: a node to be used again.
struct Node<T> {
    message: Option<T>,
    before: *mut Node<T>,
}

impl<T> Node<T> {
    fn allocate(message: Option<T>) -> *mut Self {
        Box::into_raw(Box::new(Node { message, before: ptr::null_mut() }))
    }
}

/// What was sent and not taken, the newest first.
struct Stack<T> {
    newest: AtomicPtr<Node<T>>,
}

// SAFETY: the stack owns its nodes. Each message is moved in by one thread and out by one thread; none is shared.
unsafe impl<T: Send> Send for Stack<T> {}
// SAFETY: as above; the pointer is only ever used through atomic operations.
unsafe impl<T: Send> Sync for Stack<T> {}

/// In place of the newest node: there is no receiver any more.
fn closed<T>() -> *mut Node<T> {
    ptr::dangling_mut()
}

impl<T> Stack<T> {
    fn new() -> Self {
        Stack { newest: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Links a node in, which the stack owns from then on. False where it is closed: the node is still the caller's.
    fn push(&self, node: *mut Node<T>) -> bool {
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            if newest == closed() {
                return false;
            }
            // SAFETY: the caller's node; no other thread knows it before the exchange succeeds.
            unsafe { (*node).before = newest };
            // Another thread's success is the only reason to try again: one that is preempted here delays no other thread.
            match self.newest.compare_exchange_weak(newest, node, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => newest = now,
            }
        }
    }

    /// Takes all nodes and leaves `instead`.
    fn take(&self, instead: *mut Node<T>) -> Taken<T> {
        // Acquire: the exchanges of all senders form one release sequence, so their nodes are seen whole.
        Taken(self.newest.swap(instead, Ordering::Acquire))
    }
}

impl<T> Drop for Stack<T> {
    fn drop(&mut self) {
        let newest = *self.newest.get_mut();
        if newest != closed() {
            drop(Taken(newest));
        }
    }
}

/// Nodes that belong to one thread.
struct Taken<T>(*mut Node<T>);

// SAFETY: it owns the nodes, whose messages may be moved between threads.
unsafe impl<T: Send> Send for Taken<T> {}

impl<T> Taken<T> {
    /// Takes the first node, which is the caller's to link in again or to free.
    fn pop(&mut self) -> Option<*mut Node<T>> {
        if self.0.is_null() {
            return None;
        }
        let node = self.0;
        // SAFETY: a node that `Node::allocate` gave, which nothing else points to: it was taken out of its stack.
        self.0 = unsafe { (*node).before };
        Some(node)
    }

    /// The same nodes in the opposite order.
    fn reversed(mut self) -> Self {
        let mut turned = Taken(ptr::null_mut());
        while let Some(node) = self.pop() {
            // SAFETY: as in `pop`; the node stays allocated and moves from one list to the other.
            unsafe { (*node).before = turned.0 };
            turned.0 = node;
        }
        turned
    }
}

impl<T> Drop for Taken<T> {
    fn drop(&mut self) {
        while let Some(node) = self.pop() {
            // SAFETY: as in `pop`; it is used nowhere from here on.
            drop(unsafe { Box::from_raw(node) });
        }
    }
}

/// Nodes without messages, for other threads to use again or to free.
pub struct SpareNodes<T>(Arc<Spares<T>>);

struct Spares<T> {
    nodes: Stack<T>,
    /// How many there are, and may be. Approximate: a node is counted before it is linked in.
    count: AtomicUsize,
    most: usize,
}

impl<T> Clone for SpareNodes<T> {
    fn clone(&self) -> Self {
        SpareNodes(self.0.clone())
    }
}

impl<T> std::fmt::Debug for SpareNodes<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SpareNodes")
    }
}

impl<T: Send> SpareNodes<T> {
    /// None yet. With more than `most` of them, a receiver frees the nodes of what it receives itself.
    pub fn at_most(most: usize) -> Self {
        SpareNodes(Arc::new(Spares { nodes: Stack::new(), count: AtomicUsize::new(0), most }))
    }

    /// Allocates so many.
    pub fn with_reserve(self, count: usize) -> Self {
        (0..count).for_each(|_| self.add(Node::allocate(None)));
        self
    }

    /// Frees all that there are.
    pub fn free(&self) {
        drop(self.take());
    }

    /// Links in a node without a message, which is the caller's.
    fn add(&self, node: *mut Node<T>) {
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

    fn take(&self) -> Taken<T> {
        self.0.count.store(0, Ordering::Relaxed);
        self.0.nodes.take(ptr::null_mut())
    }
}

/// The sending side; any number of threads has a clone.
pub struct Sender<T>(Arc<Stack<T>>);

/// A sender that allocates nothing as long as spare nodes are left.
pub struct ReservedSender<T> {
    sender: Sender<T>,
    spare: SpareNodes<T>,
    /// Of these, the ones that this sender has taken.
    own: Taken<T>,
}

/// The receiving side.
pub struct Receiver<T> {
    stack: Arc<Stack<T>>,
    /// What was taken and not handed out, the oldest first.
    taken: Taken<T>,
    spare: SpareNodes<T>,
}

/// A queue without messages.
pub fn queue<T: Send>() -> (Sender<T>, Receiver<T>) {
    queue_with(SpareNodes::at_most(0))
}

/// A queue without messages, whose receiver adds the nodes of what it has received to `spare`.
pub fn queue_with<T: Send>(spare: SpareNodes<T>) -> (Sender<T>, Receiver<T>) {
    let stack = Arc::new(Stack::new());
    (Sender(stack.clone()), Receiver { stack, taken: Taken(ptr::null_mut()), spare })
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
        self.send_in(Node::allocate(Some(message)))
    }

    /// Sends the message of a node, which is the caller's.
    fn send_in(&self, node: *mut Node<T>) -> Result<(), T> {
        if self.0.push(node) {
            return Ok(());
        }
        // SAFETY: the caller's node, which was not linked in.
        let node = unsafe { Box::from_raw(node) };
        node.message.map_or(Ok(()), Err)
    }

    /// A sender with nodes that were allocated before.
    pub fn with_nodes(self, spare: SpareNodes<T>) -> ReservedSender<T> {
        ReservedSender { sender: self, spare, own: Taken(ptr::null_mut()) }
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
            self.own = self.spare.take();
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
        self.spare.add(node);
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
    fn queue_messages_keep_each_senders_order() {
        const SENDERS: usize = 4;
        const EACH: usize = 50_000;
        let (sender, mut receiver) = queue();
        std::thread::scope(|scope| {
            for name in 0..SENDERS {
                let sender = sender.clone();
                scope.spawn(move || (0..EACH).for_each(|number| sender.send((name, number)).expect("open")));
            }
            let (mut next, mut left) = ([0; SENDERS], SENDERS * EACH);
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
        struct Counted(Arc<AtomicUsize>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let dropped = Arc::new(AtomicUsize::new(0));
        let (sender, mut receiver) = queue();
        let send = |count| (0..count).filter(|_| sender.send(Counted(dropped.clone())).is_ok()).count();
        assert_eq!(send(3), 3);
        drop(receiver.try_receive());
        assert_eq!(send(2), 2);
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
        drop(receiver);
        assert_eq!(dropped.load(Ordering::SeqCst), 5);
        assert_eq!(send(2), 0);
        assert_eq!(dropped.load(Ordering::SeqCst), 7);
    }

    /// A sender that stops between its two steps, as one that is preempted there does: with the standard library's channel
    /// the receiver would not return.
    #[test]
    fn queue_with_stopped_sender_is_still_received() {
        let (sender, mut receiver) = queue();
        // What a stopped sender has done by then: it has a node, and has read the newest.
        let node = Node::allocate(Some(1));
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

    /// One thread adds more than are kept, and another takes them all: the count never passes the bound, below zero least of all.
    #[test]
    fn queue_counts_its_spare_nodes_while_they_are_taken() {
        const MOST: usize = 4;
        let spare: SpareNodes<u32> = SpareNodes::at_most(MOST);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    spare.free();
                }
            });
            let largest = (0..300_000).map(|_| {
                spare.add(Node::allocate(None));
                spare.0.count.load(Ordering::Relaxed)
            });
            let largest = largest.max();
            is_over.store(true, Ordering::Relaxed);
            assert!(largest <= Some(MOST), "{largest:?}");
        });
    }

    /// The nodes of one direction circulate: what the receiver has received, the sender sends with.
    #[test]
    fn queue_with_reserve_uses_its_nodes_again() {
        let spare = SpareNodes::at_most(8).with_reserve(2);
        let (sender, mut receiver) = queue_with(spare.clone());
        let mut reserved = sender.clone().with_nodes(spare.clone());
        let count = || spare.0.count.load(Ordering::SeqCst);
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
        spare.free();
        assert_eq!(count(), 0);
        assert_eq!(reserved.send(7), Ok(()));
        drop(receiver);
        assert_eq!(reserved.send(8), Err(8));
    }
}
