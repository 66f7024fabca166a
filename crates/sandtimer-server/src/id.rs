//! Ids of what a server makes.

/// Returns an id that cannot be guessed.
pub(crate) fn new_id() -> String {
    let mut bytes = [0u8; 8];
    // The kernel's generator does not fail for so few bytes once the machine is up.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
