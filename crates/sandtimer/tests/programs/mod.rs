//! Programs as jobs of a pool.

use sandtimer::engine::CallSpec;

/// A program as a job: the length of a pickled dictionary of options, the dictionary, then the
/// source.
pub fn program(source: &str) -> CallSpec {
    let options = b"(dVkind\nVprogram\ns.";
    let mut job = (options.len() as u32).to_le_bytes().to_vec();
    job.extend_from_slice(options);
    job.extend_from_slice(source.as_bytes());
    CallSpec { job, program: true, ..CallSpec::default() }
}
