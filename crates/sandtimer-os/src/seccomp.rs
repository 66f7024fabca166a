//! Compiles the syscall policy of a sealed sandbox into a classic BPF program for seccomp(2).
//!
//! Pure computation: nothing here loads a filter, makes a system call or inspects the machine.
//!
//! The hard fact: loading a filter costs the kernel one pass per known syscall number, each running
//! the program until it answers, so a list of comparisons takes hundreds of microseconds where a
//! balanced tree takes a fraction of that. The program is therefore a binary tree over ranges of
//! numbers that share an answer. Calls that are allowed whatever their arguments are answered from
//! a bitmap afterwards and never run the program at all.
//!
//! What a filter cannot see, because it sees numbers and never memory or descriptors, is left to
//! other layers: the address given to connect(2), the contents of `sched_attr`, and huge pages. No
//! other layer covers file locks and inotify watches on shared read-only files; honest programs
//! need both calls, so they stay a residual risk. With [`FilterPolicy::network`], and wherever
//! there is no network namespace, abstract Unix sockets of the host are in reach unless Landlock's
//! scope closes them.

mod architecture;
mod assembler;
mod policy;
#[cfg(test)]
mod tests;

pub use assembler::Instruction;
use assembler::{Assembler, CodeLabel, Test};
pub use policy::FilterPolicy;
use policy::{FilterAction, Rule};

/// Offset of the syscall number in the kernel's `struct seccomp_data`.
const NUMBER_OFFSET: u32 = 0;
/// Offset of the audit architecture in `struct seccomp_data`.
const ARCHITECTURE_OFFSET: u32 = 4;

/// How much of a policy a program is. The kernel asks every filter of a process and takes the
/// strictest answer, so that a process under both parts is under the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterPart {
    Whole,
    /// What a process can be under that makes and seals others: it calls what the rest is about.
    /// They inherit it, and a program that is inherited is not loaded again.
    Inherited,
    /// What is left for each of those to load by itself: a quarter of the whole.
    Rest,
}

/// Compiles a part of `policy` into a program that seccomp(2) accepts: a few hundred instructions,
/// below the kernel's limit of 4096.
///
/// A refused call returns an errno to its caller; nothing is logged. Only a call made through
/// another system call interface of the processor (32-bit or x32) kills the process, because its
/// number means something else there.
#[must_use]
pub fn compile(policy: &FilterPolicy, part: FilterPart) -> Vec<Instruction> {
    let mut program = Assembler::default();
    let kill = program.answer(FilterAction::KillProcess);
    let by_number = tree(&mut program, &ranges(policy, part));
    let native = program.branch(Test::AnyBit, architecture::FOREIGN_NUMBER_BIT, kill, by_number);
    let number = program.load(NUMBER_OFFSET, native);
    let known = program.branch(Test::Equal, architecture::AUDIT_ARCHITECTURE, number, kill);
    program.load(ARCHITECTURE_OFFSET, known);
    program.finish()
}

/// The program as the bytes of a `struct sock_filter` array, 8 for each instruction, in this
/// machine's byte order.
#[must_use]
pub fn to_bytes(program: &[Instruction]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of_val(program));
    for instruction in program {
        bytes.extend_from_slice(&instruction.code.to_ne_bytes());
        bytes.extend_from_slice(&[instruction.jt, instruction.jf]);
        bytes.extend_from_slice(&instruction.k.to_ne_bytes());
    }
    bytes
}

/// Neighbouring syscall numbers with one rule; each range ends where the next begins, the last one
/// at `u32::MAX`.
#[derive(Debug)]
struct SyscallRange {
    first: u32,
    rule: Rule,
}

/// A part of the policy as ranges over every possible number, ascending, neighbours always
/// different.
fn ranges(policy: &FilterPolicy, part: FilterPart) -> Vec<SyscallRange> {
    let mut rules = policy::rules(policy);
    rules.sort_by_key(|&(number, _)| number);
    let mut rules = rules.into_iter().peekable();
    let mut ranges: Vec<SyscallRange> = Vec::new();
    for first in 0..=architecture::NEWEST + 1 {
        let rule =
            rules.next_if(|&(number, _)| number == first).map_or_else(|| unlisted(first), |(_, rule)| rule);
        let is_elsewhere = match part {
            FilterPart::Whole => false,
            FilterPart::Inherited => policy::is_of_the_rest(first, &rule),
            FilterPart::Rest => !policy::is_of_the_rest(first, &rule),
        };
        let rule = if is_elsewhere { Rule::Action(FilterAction::Allow) } else { rule };
        if ranges.last().is_none_or(|last| last.rule != rule) {
            ranges.push(SyscallRange { first, rule });
        }
    }
    ranges
}

/// The rule of a number the policy does not name. Numbers newer than the table are absent rather
/// than allowed, so a new kernel adds nothing to what a sandbox can reach, and libraries fall back
/// as they do on an old kernel.
fn unlisted(number: u32) -> Rule {
    let known = architecture::KNOWN.iter().any(|range| range.contains(&number));
    Rule::Action(if known { FilterAction::Allow } else { FilterAction::Errno(libc::ENOSYS as u16) })
}

/// Emits the choice among `ranges`, at least one, with the syscall number in the accumulator.
fn tree(program: &mut Assembler, ranges: &[SyscallRange]) -> CodeLabel {
    if let [only] = ranges {
        return emit(program, &only.rule);
    }
    let (lower, upper) = ranges.split_at(ranges.len() / 2);
    let above = tree(program, upper);
    let below = tree(program, lower);
    program.branch(Test::AtLeast, upper[0].first, above, below)
}

/// Emits one rule. The accumulator may hold anything.
fn emit(program: &mut Assembler, rule: &Rule) -> CodeLabel {
    match rule {
        Rule::Action(answer) => program.answer(*answer),
        Rule::Case { argument, values, hit, miss } => {
            let hit = emit(program, hit);
            let miss = emit(program, miss);
            let low = half(program, argument.low(), values, hit, miss);
            if argument.is_wide() { half(program, argument.high(), &[0], low, miss) } else { low }
        }
    }
}

/// Emits the choice whether one masked half of an argument is among `values`.
fn half(
    program: &mut Assembler,
    half: policy::Half,
    values: &[u32],
    hit: CodeLabel,
    miss: CodeLabel,
) -> CodeLabel {
    let compare =
        values.iter().rev().fold(miss, |next, &value| program.branch(Test::Equal, value, hit, next));
    let masked = if half.mask == u32::MAX { compare } else { program.and(half.mask, compare) };
    program.load(half.offset, masked)
}
