//! A queue whose two sides never wait for each other, for threads of different priority.
//!
//! A thread that is preempted in the middle of [`Sender::send`] holds up neither the receiver nor other senders: a message is
//! linked in by one compare-and-swap, and what was sent so far is taken by one swap. With the standard library's channel both
//! spin until such a thread runs again, which it cannot while a real-time thread that spins has its processor.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A message, and the one that was sent before it.
struct Node<T> {
    message: T,
    before: *mut Node<T>,
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
    fn pop(&mut self) -> Option<T> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: a node that Box::into_raw gave, which nothing else points to: it was taken out of the stack.
        let node = unsafe { Box::from_raw(self.0) };
        self.0 = node.before;
        Some(node.message)
    }

    /// The same nodes in the opposite order.
    fn reversed(mut self) -> Self {
        let mut turned = Taken(ptr::null_mut());
        while !self.0.is_null() {
            let node = self.0;
            // SAFETY: as in `pop`; the node stays allocated and moves from one list to the other.
            unsafe { self.0 = std::mem::replace(&mut (*node).before, turned.0) };
            turned.0 = node;
        }
        turned
    }
}

impl<T> Drop for Taken<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

/// The sending side; any number of threads has a clone.
pub struct Sender<T>(Arc<Stack<T>>);

/// The receiving side.
pub struct Receiver<T> {
    stack: Arc<Stack<T>>,
    /// What was taken and not handed out, the oldest first.
    taken: Taken<T>,
}

/// A queue without messages.
pub fn queue<T: Send>() -> (Sender<T>, Receiver<T>) {
    let stack = Arc::new(Stack { newest: AtomicPtr::new(ptr::null_mut()) });
    (Sender(stack.clone()), Receiver { stack, taken: Taken(ptr::null_mut()) })
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

impl<T> std::fmt::Debug for Receiver<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Receiver")
    }
}

impl<T: Send> Sender<T> {
    /// Sends a message; gives it back where there is no receiver any more.
    pub fn send(&self, message: T) -> Result<(), T> {
        let node = Box::into_raw(Box::new(Node { message, before: ptr::null_mut() }));
        let mut newest = self.0.newest.load(Ordering::Relaxed);
        loop {
            if newest == closed() {
                // SAFETY: made above, and never linked in.
                return Err(unsafe { Box::from_raw(node) }.message);
            }
            // SAFETY: made above; no other thread knows it before the exchange succeeds.
            unsafe { (*node).before = newest };
            // Another sender's success is the only reason to try again: a sender that is preempted here delays no other thread.
            match self.0.newest.compare_exchange_weak(newest, node, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => newest = now,
            }
        }
    }
}

impl<T> Sender<T> {
    /// Whether there is no receiver any more.
    pub fn is_closed(&self) -> bool {
        self.0.newest.load(Ordering::Acquire) == closed()
    }
}

impl<T> Receiver<T> {
    /// The oldest message, if there is one. Never waits.
    pub fn try_receive(&mut self) -> Option<T> {
        if self.taken.0.is_null() && !self.stack.newest.load(Ordering::Relaxed).is_null() {
            // Acquire: the exchanges of all senders form one release sequence, so their nodes are seen whole.
            let newest = self.stack.newest.swap(ptr::null_mut(), Ordering::Acquire);
            self.taken = Taken(newest).reversed();
        }
        self.taken.pop()
    }
}

impl<T> Drop for Receiver<T> {
    /// Drops what was not received, and all that is sent from now on.
    fn drop(&mut self) {
        drop(Taken(self.stack.newest.swap(closed(), Ordering::Acquire)));
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
        let node = Box::into_raw(Box::new(Node { message: 1, before: ptr::null_mut() }));
        let before = sender.0.newest.load(Ordering::Relaxed);
        sender.send(2).expect("open");
        assert_eq!(receiver.try_receive(), Some(2));
        assert_eq!(receiver.try_receive(), None);
        // It goes on, and what it has read is by chance the newest still.
        // SAFETY: made above, not linked in yet.
        unsafe { (*node).before = before };
        assert!(sender.0.newest.compare_exchange(before, node, Ordering::Release, Ordering::Relaxed).is_ok());
        assert_eq!(receiver.try_receive(), Some(1));
    }
}
