//! How many pseudo-terminals the runs of an engine may have. The machine has one number of them for
//! all (`kernel.pty.max`).
//!
//! A run with a terminal opens at most `OF_TERMINAL`; the caller bounds the number of such runs. A
//! jail without one opens at most `OF_SANDBOX`, and a third of what the machine has is divided into
//! shares of that size, of which one owner has half at most. A jail for which no share is left has
//! no /dev/pts, and its report says so.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use sandtimer_os::probe::read_string;

/// Pseudo-terminals of a run that has a terminal.
const OF_TERMINAL: u32 = 16;
/// Pseudo-terminals of a sandbox without one.
const PTYS_PER_JAIL: u32 = 4;
/// Parts of the machine's pseudo-terminals, of which sandboxes without a terminal have one.
const PARTS: u32 = 3;

/// For whom a sandbox is made; without a name where there is one owner only.
pub type PtyOwner = Option<Arc<str>>;

/// The sandboxes of an engine that have a /dev/pts.
#[derive(Debug)]
pub struct Ptys {
    /// How many there may be; read when a first sandbox has one.
    most: OnceLock<usize>,
    held: Mutex<HashMap<PtyOwner, usize>>,
}

/// That a sandbox may open pseudo-terminals. Dropping it gives them back.
#[derive(Debug)]
pub struct PtyShare {
    ptys: Arc<Ptys>,
    owner: PtyOwner,
}

impl Ptys {
    /// Counts the pseudo-terminals of the machine, whose maximum is read when it is first needed.
    pub fn of_machine() -> Self {
        Ptys { most: OnceLock::new(), held: Mutex::default() }
    }

    fn most(&self) -> usize {
        *self.most.get_or_init(|| {
            let read = |name: &str| -> Option<u32> {
                read_string(format!("/proc/sys/kernel/pty/{name}")).ok()?.trim().parse().ok()
            };
            // As the kernel is built.
            let (most, reserved) = (read("max").unwrap_or(4_096), read("reserve").unwrap_or(1_024));
            share_of(most.saturating_sub(reserved))
        })
    }

    /// One more sandbox's, if there is room.
    ///
    /// # Errors
    /// Why there is none.
    pub fn take(self: &Arc<Self>, owner: PtyOwner) -> Result<PtyShare, String> {
        let most = self.most();
        // Each change is one number.
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = held.values().sum();
        let own = held.get(&owner).copied().unwrap_or_default();
        if own >= most / 2 || all >= most {
            return Err(format!(
                "{own} sandboxes of its owner have pseudo-terminals already, {all} with those of others, and one owner may have {}, \
                 all {}; there are more if kernel.pty.max is raised before the engine starts",
                most / 2,
                most
            ));
        }
        held.insert(owner.clone(), own + 1);
        Ok(PtyShare { ptys: self.clone(), owner })
    }
}

impl Drop for PtyShare {
    fn drop(&mut self) {
        let mut held = self.ptys.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = held.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.owner);
            }
        }
    }
}

/// How many sandboxes without a terminal there may be where the machine has this many
/// pseudo-terminals.
fn share_of(all: u32) -> usize {
    (all / PARTS / PTYS_PER_JAIL) as usize
}

/// How many pseudo-terminals a sandbox opens: one of a run with a terminal, or one with this share.
pub fn most(has_terminal: bool, share: Option<&PtyShare>) -> u32 {
    match (has_terminal, share) {
        (true, _) => OF_TERMINAL,
        (false, Some(_)) => PTYS_PER_JAIL,
        (false, None) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_gets_up_to_half() {
        let ptys = Arc::new(Ptys { most: OnceLock::from(share_of(3_072)), held: Mutex::default() });
        let take = |name: &str| -> Vec<PtyShare> {
            std::iter::from_fn(|| ptys.take(Some(name.into())).ok()).take(1_000).collect()
        };
        let of_one = take("a");
        assert_eq!(of_one.len(), 128);
        let of_other = take("b");
        assert_eq!((of_other.len(), take("c").len()), (128, 0));
        let sum = (of_one.len() + of_other.len()) as u32 * PTYS_PER_JAIL;
        assert_eq!(sum + 128 * OF_TERMINAL, 3_072, "with the runs with terminals of a server");
        drop(of_one);
        assert_eq!((take("b").len(), take("c").len()), (0, 128));
        drop(of_other);
        assert!(ptys.held.lock().expect("whole").is_empty());
    }
}
